// Whether a job may start: whether [jobs] memory has room for its result.
#include "runtime/schedule/job_book.hpp"

#include <algorithm>

namespace penstock::schedule {
namespace {

// Reported run times are cut to this: workers are untrusted, and sums must not overflow.
constexpr nanoseconds busy_max = std::chrono::hours(1);
// Each smaller result lowers the recorded largest one by 1/forgotten of the difference.
constexpr std::uint64_t forgotten = 16;
// The expected result of a function that has not returned one yet.
constexpr std::uint64_t first_guess = 1U << 20U;

}  // namespace

/// Learns what jobs of this function need: their average run time, and the memory of
/// the largest recent result.
void job_book::learn(function_entry& f, const row_reading& now) {
  const nanoseconds busy = std::clamp(now.busy, nanoseconds(0), busy_max);
  const bool known = f.typical.count() >= 0;
  f.typical = known ? f.typical + (busy - f.typical) / 8 : busy;
  if (now.at != row_state::finished) return;
  const std::uint64_t bytes = now.bytes_elsewhere;
  const std::uint64_t largest = std::max(bytes, f.result_bytes.value_or(bytes));
  f.result_bytes = largest - (largest - bytes + forgotten - 1) / forgotten;
}

/// The memory that the job's result is expected to take: a guess until the function has returned a result.
std::uint64_t job_book::result_of(const job_entry& e) const {
  if (e.request.holds_slot) return 0;
  return e.function->result_bytes.value_or(std::min(first_guess, memory_.room / 8));
}

bool job_book::may_begin(const job_entry& e) {
  if (e.request.urgent || !memory_.before) return true;
  const std::uint64_t expected = result_of(e);
  const std::uint64_t taken = memory_.kept + memory_.settling + memory_.reserved + expected;
  if (taken <= memory_.room) return true;
  std::uint64_t lacking = taken - memory_.room;
  if (is_first(e)) {
    const std::uint64_t before = results_before(e.request.job);
    if (before == 0 || before + expected <= memory_.most) return true;
    lacking = std::min({lacking, before, before + expected - memory_.most});
  }
  memory_.lacking = memory_.lacking == 0 ? lacking : std::min(memory_.lacking, lacking);
  return false;
}

/// Results that callers hold, and those that they are about to receive.
std::uint64_t job_book::results_before(job_id job) const {
  std::uint64_t sum = memory_.before(job);
  for (const job_command& c : outbox_) {
    const auto* const end = std::get_if<settle_job>(&c);
    sum += end != nullptr && end->job < job ? end->bytes_elsewhere : 0;
  }
  return sum;
}

std::optional<job_book::memory_lack> job_book::lacks_memory() const noexcept {
  if (memory_.lacking == 0 || waiting_ == 0) return std::nullopt;
  return memory_lack{first_waiting(), memory_.lacking};
}

job_id job_book::unrestricted_jobs::first() const {
  const job_id none = std::numeric_limits<job_id>::max();
  return std::min(urgent.empty() ? none : urgent.begin()->first,
                  others.empty() ? none : others.begin()->first);
}

/// Requires that a job waits.
job_id job_book::first_waiting() const {
  job_id first = ordinary_.first();
  for (const restricted_jobs* some : {&suspected_, &fresh_})
    if (!some->empty()) first = std::min(first, some->first());
  for (const auto& [place, group] : placed_)
    if (!group.jobs.empty()) first = std::min(first, group.jobs.begin()->first);
  if (const auto next = suspicion_.next_probation()) first = std::min(first, next->who.sample);
  return first;
}

/// Whether all jobs before this waiting one are settled. Called only while memory is short.
bool job_book::is_first(const job_entry& e) const {
  if (first_waiting() < e.request.job) return false;
  for (const auto& [index, w] : workers_.all()) {
    for (const std::uint32_t number : w.more.order) {
      const auto& rows = w.slots[number].use.rows;
      const auto before = [&](const row& r) {
        return r.job != nullptr && r.job->request.job < e.request.job;
      };
      if (std::ranges::any_of(rows, before)) return false;
    }
  }
  return true;
}

}  // namespace penstock::schedule
