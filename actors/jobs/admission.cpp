#include "actors/jobs/admission.hpp"

#include "runtime/base/units.hpp"

#include <algorithm>
#include <atomic>

namespace penstock::jobs {
schedule::job_bounds::thread_number this_thread() noexcept {
  static std::atomic<schedule::job_bounds::thread_number> numbers{0};
  thread_local const schedule::job_bounds::thread_number own = ++numbers;
  return own;
}

// ---- callers ----------------------------------------------------------------------------------------------

result<void> admission::possible(std::uint64_t bytes) const {
  if (closed_) return tl::unexpected(*closed_);
  if (bounds_.possible(bytes)) return {};
  return refuse(errc::out_of_memory,
                "submitting a job with an argument of {}: [jobs] memory is only {}; raise it, or submit "
                "smaller arguments",
                bytes_for_people(bytes), bytes_for_people(bounds_.memory()));
}

result<void> admission::enter(std::uint64_t bytes, steady_time deadline, submitter who) {
  std::unique_lock hold(mutex_);
  const auto answered = [&] { return closed_ || !bounds_.possible(bytes) || bounds_.admits(bytes, who); };
  if (!answered()) {
    ++waiting_;
    bounds_.asks();
    std::optional<std::string> own;
    steady_time now = std::chrono::steady_clock::now();
    while (!own && !room_.wait_until(hold, std::min(deadline, now + look_every), answered)) {
      now = std::chrono::steady_clock::now();
      own = own_wait(now);
      if (now >= deadline) break;
    }
    --waiting_;
    bounds_.asked(answered() ? std::nullopt : std::optional(now));
    if (own && !answered()) return refuse(errc::usage, "submitting a job: {}", *own);
  }
  if (auto ok = possible(bytes); !ok) return ok;
  if (!bounds_.admits(bytes, who)) {
    return refuse(errc::timed_out,
                  "submitting a job: {} of at most {} jobs wait ([jobs] queue); arguments and {}",
                  bounds_.waiting(), bounds_.queue(), held());
  }
  bounds_.entered(bytes);
  return {};
}

result<bool> admission::try_enter(std::uint64_t bytes, submitter who) {
  const std::lock_guard hold(mutex_);
  if (auto ok = possible(bytes); !ok) return tl::unexpected(ok.error());
  if (!bounds_.admits(bytes, who)) return false;
  bounds_.entered(bytes);
  return true;
}

void admission::close(failure why) {
  const std::lock_guard hold(mutex_);
  if (!closed_) closed_ = std::move(why);
  room_.notify_all();
}

// ---- jobs -------------------------------------------------------------------------------------------------

template <class Free>
void admission::make_room(Free free) {
  bool due = false;
  {
    const std::lock_guard hold(mutex_);
    free();
    if (waiting_ > 0) room_.notify_all();
    due = wake_is_due();
  }
  if (due) wake_();
}

void admission::begun(std::uint64_t jobs) {
  const std::lock_guard hold(mutex_);
  bounds_.begun(jobs);
  if (waiting_ > 0) room_.notify_all();
}

void admission::ended(std::uint64_t bytes) {
  if (bytes > 0) make_room([&] { bounds_.ended(bytes); });
}

admission::holding admission::kept(std::uint64_t job, std::uint64_t bytes) {
  const std::lock_guard hold(mutex_);
  return bounds_.kept(job, bytes);
}

void admission::let_go(holding what) {
  make_room([&] { bounds_.freed(what); });
}

// ---- the job scheduler ------------------------------------------------------------------------------------

admission::room admission::room_now() const {
  const std::lock_guard hold(mutex_);
  return {bounds_.results(), bounds_.room_for_results(), bounds_.freed()};
}

std::uint64_t admission::results_before(std::uint64_t job) {
  const std::lock_guard hold(mutex_);
  return bounds_.results_before(job);
}

void admission::decided(std::uint64_t running, const std::optional<schedule::job_book::memory_lack>& lack,
                        const room& since) {
  bool due = false;
  {
    const std::lock_guard hold(mutex_);
    bounds_.decided(running, lack ? std::optional(lack->first) : std::nullopt);
    wake_at_ = lack ? std::optional(since.freed + lack->bytes) : std::nullopt;
    due = wake_is_due();
  }
  if (due) wake_();
}

bool admission::wake_is_due() noexcept {
  if (!wake_at_ || bounds_.freed() < *wake_at_ || !wake_) return false;
  wake_at_.reset();
  return true;
}

// ---- waits ------------------------------------------------------------------------------------------------

/// "kept results hold 7.9 MiB of 8 MiB ([jobs] memory)".
std::string admission::held() const {
  return fmt::format("kept results hold {} of {} ([jobs] memory)",
                     bytes_for_people(bounds_.arguments() + bounds_.results()),
                     bytes_for_people(bounds_.memory()));
}

std::optional<std::string> admission::own_wait(steady_time now) {
  if (!bounds_.waits_for_itself(this_thread(), now)) return std::nullopt;
  return fmt::format(
      "no job can start until this thread frees results: results that it keeps or that callbacks have not "
      "taken yet hold {} of {} ([jobs] memory); free some, or raise [jobs] memory",
      bytes_for_people(bounds_.results()), bytes_for_people(bounds_.memory()));
}

std::optional<std::string> admission::waits_for_itself(steady_time now) {
  const std::lock_guard hold(mutex_);
  return own_wait(now);
}

admission::counts admission::now() const {
  const steady_time now = std::chrono::steady_clock::now();
  const std::lock_guard hold(mutex_);
  return {bounds_.waiting(), bounds_.arguments(), bounds_.results(), bounds_.anyone_asks(now),
          bounds_.callers_hold_everything(now)};
}

}  // namespace penstock::jobs
