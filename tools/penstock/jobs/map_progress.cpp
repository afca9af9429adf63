#include "tools/penstock/jobs/map_progress.hpp"

#include "runtime/base/counted.hpp"
#include "tools/penstock/run/progress.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::cli {
namespace {

double per_second(std::uint64_t now, std::uint64_t before, double seconds) {
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

std::string workers_of(const session_status& pool) {
  const auto ready = std::ranges::count(pool.workers, child_state::ready, &worker_status::state);
  std::string text = "  " + counted(static_cast<std::uint64_t>(ready), "worker");
  if (pool.worker_restarts > 0) text += "  " + counted(pool.worker_restarts, "restart");
  if (pool.state != session_state::ok) text += fmt::format("  {}", name_of(pool.state));
  if (pool.stalled) text += fmt::format("  stalled for {:.0f} s", pool.stalled->seconds);
  return text;
}

}  // namespace

std::string map_progress_line(const map_status& now, const map_status& before, double seconds_between,
                              std::size_t width, bool with_bar) {
  std::string text;
  const auto done = static_cast<double>(now.counts.input_bytes);
  if (now.input_bytes && *now.input_bytes > 0) {
    const double share = std::min(1.0, done / static_cast<double>(*now.input_bytes));
    if (with_bar) text += progress_bar(share) + " ";
    text += fmt::format("{:3.0f} %  ", std::floor(share * 100));
  }
  text += counted(now.counts.jobs, "job") + "  " +
          rate_for_people(per_second(now.counts.jobs, before.counts.jobs, seconds_between), "job");
  if (const std::uint64_t failed = now.counts.jobs - now.counts.of(job_status::ok); failed > 0)
    text += fmt::format("  {} failed", failed);
  if (now.counts.skipped > 0) text += fmt::format("  {} skipped", now.counts.skipped);
  if (now.input_bytes && static_cast<double>(*now.input_bytes) > done) {
    text += time_left(static_cast<double>(*now.input_bytes) - done,
                      per_second(now.counts.input_bytes, before.counts.input_bytes, seconds_between));
  }
  text += workers_of(now.pool);
  if (text.size() > width) text.resize(width);
  return text;
}

std::string map_counts_line(const map_counts& counts) {
  std::string text = counted(counts.jobs, "job");
  std::string_view before = ": ";
  for (const job_status status : all_job_statuses) {
    if (counts.of(status) == 0) continue;
    text += fmt::format("{}{} {}", before, counts.of(status), name_of(status));
    if (status == job_status::ok && counts.nonzero_exits > 0)
      text += fmt::format(", {} of them exited with a code other than 0 (--fail-on-exit counts these as failed)", counts.nonzero_exits);
    before = ", ";
  }
  if (counts.from_journal > 0) text += fmt::format("; {} from the journal", counts.from_journal);
  if (counts.skipped > 0) text += fmt::format("; {} skipped", counted(counts.skipped, "bad line"));
  return text;
}

}  // namespace penstock::cli
