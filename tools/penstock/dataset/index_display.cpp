#include "tools/penstock/dataset/index_display.hpp"

#include "runtime/base/units.hpp"
#include "runtime/dataset/mixture/mixture.hpp"
#include "runtime/dataset/store_settings.hpp"
#include "runtime/dataset/tar/index_cache.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/progress.hpp"

#include <fmt/format.h>

#include <mutex>
#include <optional>

namespace penstock::cli {
namespace {

std::string line_of(const index_progress& now, bool with_bar) {
  if (now.waiting) return "waiting for another process that indexes the same shards";
  const double share = now.all == 0 ? 0 : static_cast<double>(now.bytes) / static_cast<double>(now.all);
  return fmt::format("indexing shards  {}{:.0f} %  {} of {}", with_bar ? progress_bar(share) + " " : "",
                     100 * share, bytes_for_people(now.bytes), bytes_for_people(now.all));
}

}  // namespace

void index_with_bar(const config& settings) {
  for (std::size_t i = 0; i < settings.datasets.size(); ++i) index_with_bar(settings_of_part(settings, i));
  if (settings.dataset.type != dataset_type::tar) return;
  const auto shards = list_shards(settings.dataset.path, store_options_of(settings));
  if (!shards) return;
  std::mutex mutex;
  index_progress now;
  std::optional<progress_display> display;
  const auto found = find_index(*shards, settings.storage.cache, [&](const index_progress& progress) {
    {
      const std::lock_guard lock(mutex);
      now = progress;
    }
    // Only now is it known that there is something to wait for.
    if (display) return;
    display.emplace([&](std::size_t width, bool with_bar) {
      const std::lock_guard lock(mutex);
      return line_of(now, with_bar).substr(0, width);
    });
  });
  display.reset();
  if (!found || !found->built) return;
  // Later steps find the new index and do not report the old one.
  for (std::size_t i = shards->notices.size(); i < found->notices.size(); ++i) say(found->notices[i]);
}

}  // namespace penstock::cli
