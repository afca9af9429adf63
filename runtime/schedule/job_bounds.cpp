#include "runtime/schedule/job_bounds.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>

namespace penstock::schedule {
namespace {

// A caller that waits in several short steps is expected to call again within this time.
constexpr nanoseconds back_within = std::chrono::seconds(1);

}  // namespace

// ---- submissions ------------------------------------------------------------------------------------------

bool job_bounds::admits(std::uint64_t bytes, submitter who) const noexcept {
  if (who == submitter::urgent) return true;
  const bool here = who == submitter::callback;
  const std::uint64_t taken = arguments_ + (here ? 0 : results_);
  return waiting_ < (here ? 2 * queue_ : queue_) && taken <= memory_ && bytes <= memory_ - taken;
}

void job_bounds::entered(std::uint64_t bytes) {
  ++waiting_;
  arguments_ += bytes;
  ++changes_;
}

void job_bounds::begun(std::uint64_t jobs) {
  PENSTOCK_CHECK(jobs <= waiting_, "{} of {} jobs have started", jobs, waiting_);
  waiting_ -= jobs;
  ++changes_;
}

void job_bounds::ended(std::uint64_t bytes) {
  PENSTOCK_CHECK(bytes <= arguments_, "{} of {} bytes of arguments are freed", bytes, arguments_);
  arguments_ -= bytes;
  freed_ += bytes;
  ++changes_;
}

void job_bounds::asks() {
  ++asking_;
}

void job_bounds::asked(std::optional<steady_time> given_up) {
  --asking_;
  if (given_up) gave_up_ = *given_up;
}

bool job_bounds::anyone_asks(steady_time now) const noexcept {
  return asking_ > 0 || (gave_up_ != never && now - gave_up_ < back_within);
}

// ---- results ----------------------------------------------------------------------------------------------

job_bounds::holding job_bounds::kept(job_id job, std::uint64_t bytes) {
  held_.emplace_front(job, bytes);
  results_ += bytes;
  if (job < bound_) before_bound_ += bytes;
  ++changes_;
  return held_.begin();
}

void job_bounds::freed(holding what) {
  results_ -= what->bytes;
  freed_ += what->bytes;
  if (what->job < bound_) before_bound_ -= what->bytes;
  held_.erase(what);
  ++changes_;
}

std::uint64_t job_bounds::room_for_results() const noexcept {
  return std::max(memory_ - std::min(memory_, arguments_), memory_ / 2);
}

std::uint64_t job_bounds::results_before(job_id job) {
  if (job == bound_) return before_bound_;
  bound_ = job;
  before_bound_ = 0;
  for (const result_held& one : held_) before_bound_ += one.job < job ? one.bytes : 0;
  return before_bound_;
}

// ---- waits ------------------------------------------------------------------------------------------------

void job_bounds::decided(std::uint64_t running, std::optional<job_id> held_back) {
  if (running_ != running || held_back_ != held_back) ++changes_;
  running_ = running;
  held_back_ = held_back;
}

bool job_bounds::callers_hold_everything(steady_time now) const noexcept {
  if (running_ > 0) return false;
  return held_back_ || (waiting_ == 0 && results_ > 0 && anyone_asks(now));
}

bool job_bounds::waits_for_itself(thread_number me, steady_time now) {
  if (!changes_seen_ || *changes_seen_ != changes_) quiet_.restart(now);
  changes_seen_ = changes_;
  if (!quiet_.is_over(now) || !callers_hold_everything(now)) return false;
  return std::ranges::all_of(held_, [&](const result_held& one) {
    return (held_back_ && one.job > *held_back_) || one.owner.load(std::memory_order_relaxed) == me;
  });
}

}  // namespace penstock::schedule
