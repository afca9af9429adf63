#include "tools/penstock/run/closing_text.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::cli {
namespace {

std::string epoch_line(const epoch_report& e) {
  std::string line =
      fmt::format("epoch {}{}: {} of {} in {}, {}", e.epoch, e.complete ? "" : " (incomplete)", e.delivered,
                  counted(e.expected, "sample"), counted(e.batches, "batch", "batches"),
                  duration_for_people(std::chrono::nanoseconds(static_cast<std::int64_t>(e.seconds * 1e9))));
  if (e.padded > 0) line += fmt::format(", {} repeated so that all ranks have the same number", e.padded);
  if (e.replaced > 0) line += fmt::format(", {} of them replace bad samples", e.replaced);
  if (e.early_batches > 0)
    line += fmt::format(", {} early by at most {}", counted(e.early_batches, "batch", "batches"),
                        counted(e.most_early, "place"));
  if (e.failed > 0) line += fmt::format(", {} failed", e.failed);
  if (e.quarantined > 0) line += fmt::format(", {} quarantined", e.quarantined);
  if (e.digest) line += ", digest " + *e.digest;
  return line;
}

/// Prints all epochs if they have digests, otherwise the last ones.
void tell_epochs(const std::vector<epoch_report>& all) {
  constexpr std::size_t shown = 10;
  const bool digests = std::ranges::any_of(all, [](const epoch_report& e) { return e.digest.has_value(); });
  const std::size_t hidden = digests || all.size() <= 2 * shown ? 0 : all.size() - shown;
  if (hidden > 0) say(fmt::format("... {} epochs before these; --report FILE lists all", hidden));
  for (std::size_t i = hidden; i < all.size(); ++i) say(epoch_line(all[i]));
}

struct repeated_failure {
  const failure_report* what;
  std::uint64_t times;
};

/// A bad sample fails in every epoch: report it once, for the epoch in which it failed first.
std::vector<repeated_failure> without_repeats(const std::vector<failure_report>& all) {
  std::vector<repeated_failure> once;
  std::map<std::pair<std::uint64_t, std::string_view>, std::size_t> seen;
  for (const failure_report& f : all) {
    const auto [at, is_new] = seen.try_emplace({f.sample, f.error}, once.size());
    if (is_new) once.push_back({&f, 0});
    ++once[at->second].times;
  }
  return once;
}

/// Whether the quarantine file listed the sample when the run started. A sample known only from a state has no
/// attempts: states list only numbers.
bool is_from_file(const quarantine_report& q) {
  return q.known && q.attempts > 0;
}

bool is_left_out(const quarantine_report& q) {
  return is_from_file(q) && !q.lifted;
}

void tell_losses(const run_report& r, const std::string& quarantine_file) {
  constexpr std::size_t shown = 5;
  const std::vector<repeated_failure> failures = without_repeats(r.failures);
  for (std::size_t i = 0; i < std::min(shown, failures.size()); ++i) {
    const failure_report& f = *failures[i].what;
    say(fmt::format("  {} {}: {}{}", styled(style::yellow, "failed"),
                    sample_for_people(f.sample, f.path.value_or("")), f.error,
                    failures[i].times > 1 ? fmt::format(" (x{})", failures[i].times) : ""));
  }
  if (failures.size() > shown)
    say(fmt::format("  ... and {} more; --report FILE lists them", failures.size() - shown));
  for (const quarantine_report& q : r.quarantine) {
    if (is_from_file(q)) continue;
    say(fmt::format("  {} {}: {}", styled(style::red, "quarantined"), sample_for_people(q.sample, q.path.value_or("")),
                    q.attempts > 0 ? deaths_over_work("it", q.causes, q.attempts) : "in an earlier run (from the state)"));
  }
  if (const auto listed = std::ranges::count_if(r.quarantine, is_left_out); listed > 0)
    say(fmt::format("  left out {} that an earlier run quarantined ({})", counted(static_cast<std::uint64_t>(listed), "sample"), printable(quarantine_file)));
}

void tell_hedges(const hedge_counts& h) {
  if (h.started > 0)
    say(fmt::format("hedges: {} given to a second worker, which was faster in {}", counted(h.started, "late batch", "late batches"),
                    h.won));
}

/// Omits ends ordered by an operator or by a limit of the config.
void tell_deaths(const run_report& r) {
  if (r.workers_ended_unexpectedly > 0)
    say(fmt::format("workers: {} ended unexpectedly, {}", r.workers_ended_unexpectedly,
                    counted(r.restarts, "restart")));
  if (r.owners_ended_unexpectedly > 0)
    say(fmt::format("GPU owner: {} ended unexpectedly, {}", r.owners_ended_unexpectedly,
                    counted(r.owner_restarts, "restart")));
}

}  // namespace

void tell_report(const run_report& r, const std::string& quarantine_file) {
  tell_epochs(r.epochs);
  tell_losses(r, quarantine_file);
  tell_deaths(r);
  tell_hedges(r.hedges);
  if (r.batches == 0 && r.error) {
    say(styled(style::red, "error:") + " " + r.error->message);
    return;
  }
  const double rate = r.seconds > 0 ? static_cast<double>(r.samples) / r.seconds : 0;
  const std::string first =
      r.batches == 0 ? ""
                     : "; first batch after " + duration_for_people(nanoseconds(static_cast<std::int64_t>(
                                                   r.first_batch_seconds * 1e9)));
  const style how = r.outcome == run_outcome::failed ? style::red : style::green;
  say(fmt::format("{}: {} in {}: {}, {}/s to {}{}{}",
                  styled(how, name_of(r.outcome)), counted(r.samples, "sample"),
                  duration_for_people(nanoseconds(static_cast<std::int64_t>(r.seconds * 1e9))),
                  rate_for_people(rate, "sample"),
                  bytes_for_people(static_cast<std::uint64_t>(
                      r.seconds > 0 ? static_cast<double>(r.bytes) / r.seconds : 0)),
                  r.device.name.empty() ? "no device" : r.device.name,
                  r.device.kind == "host" ? " (the host device; no GPU is used)" : "",
                  first));
  if (r.error) say(styled(style::red, "error:") + " " + r.error->message);
}

}  // namespace penstock::cli
