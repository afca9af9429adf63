#include "tools/penstock/jobs/map_files.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"

#include <filesystem>
#include <utility>

namespace penstock::cli {
namespace {

void tell_journal(const map_journal& journal, const std::string& path) {
  if (journal.torn_bytes() > 0 || journal.unreadable() > 0) {
    log::warn("map", "the journal '{}' is damaged: {} bytes at its end and {} lines are ignored",
              printable(path), journal.torn_bytes(), journal.unreadable());
  }
}

}  // namespace

result<map_files> open_files(const map_options& o, const std::string& work, std::uint64_t longest_line) {
  map_files all;
  auto input = line_source::open(o.input, longest_line, o.end_of_lines());
  if (!input) return tl::unexpected(std::move(input.error()));
  all.input = std::move(*input);
  if (o.dry_run && (o.journal.empty() || !std::filesystem::exists(o.journal))) return all;
  if (!o.dry_run) {
    auto output = map_output::open(o.output);
    if (!output) return tl::unexpected(std::move(output.error()));
    all.output = std::move(*output);
    if (auto ok = check_different(all.input->fd(), all.output.fd(), o.journal, o.job_log); !ok)
      return tl::unexpected(std::move(ok.error()));
  }
  if (!o.journal.empty()) {
    auto opened = map_journal::open(o.journal, work);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    all.journal = std::move(*opened);
    tell_journal(*all.journal, o.journal);
  }
  if (o.job_log.empty() || o.dry_run) return all;
  auto log = job_log::open(o.job_log);
  if (!log) return tl::unexpected(std::move(log.error()));
  all.log = std::move(*log);
  return all;
}

}  // namespace penstock::cli
