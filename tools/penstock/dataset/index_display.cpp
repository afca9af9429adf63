#include "tools/penstock/dataset/index_display.hpp"

#include "runtime/base/units.hpp"
#include "runtime/dataset/factory.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

namespace penstock::cli {
namespace {

std::string line_of(const index_progress& now, bool with_bar) {
  if (now.waiting) return "waiting for another process, which is indexing the same shards";
  const double share = now.all == 0 ? 0 : static_cast<double>(now.bytes) / static_cast<double>(now.all);
  return fmt::format("indexing shards  {}{:.0f} %  {} of {}", with_bar ? progress_bar(share) + " " : "",
                     100 * share, bytes_for_people(now.bytes), bytes_for_people(now.all));
}

}  // namespace

void index_with_bar(const config& settings, notices_told notices) {
  const auto is_of_tar = [](const dataset_config& dataset) { return dataset.type == dataset_type::tar; };
  if (!is_of_tar(settings.dataset) &&
      std::ranges::none_of(settings.datasets, is_of_tar, &mixed_dataset_config::dataset))
    return;
  std::mutex mutex;
  index_progress now;
  std::optional<progress_display> display;
  auto prepared = prepare_stream(settings, [&](const index_progress& progress) {
    {
      const std::lock_guard lock(mutex);
      now = progress;
    }
    // An index is being built: only now is there progress to show.
    if (display) return;
    display.emplace([&](std::size_t width, bool with_bar) {
      const std::lock_guard lock(mutex);
      return line_of(now, with_bar).substr(0, width);
    });
  });
  const bool built = display.has_value();
  display.reset();
  if (!prepared) return;
  if (notices == notices_told::here) {
    if (built)
      for (const std::string& notice : prepared->notices) say(notice);
    prepared->notices.clear();
  }
  keep_prepared(settings, *prepared);
}

}  // namespace penstock::cli
