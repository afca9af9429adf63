// Admission of jobs to a pool: makes the queue and memory limits of schedule/job_bounds available to many
// threads. Callers of submit wait here; results count here until their callers free them.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/home_process.hpp"
#include "runtime/base/result.hpp"
#include "runtime/schedule/job_bounds.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace penstock::jobs {

using schedule::submitter;

/// How often a waiting thread checks whether only it could end its own wait.
inline constexpr std::chrono::milliseconds look_every{500};

/// The number of the calling thread; never reused.
[[nodiscard]] schedule::job_bounds::thread_number this_thread() noexcept;

/// Thread-safe.
class admission {
 public:
  using holding = schedule::job_bounds::holding;

  /// At most `queue` jobs may wait, and at most `memory` bytes may be held.
  admission(std::uint64_t queue, std::uint64_t memory) : bounds_(queue, memory) {}

  [[nodiscard]] const home_process& home() const noexcept { return home_; }

  /// Waits until there is room for one more job, at most until `deadline`. Fails with errc::timed_out, naming
  /// what is full; with errc::usage if this thread waits for itself (schedule/job_bounds); with
  /// errc::out_of_memory at once if `bytes` can never fit; and with close()'s failure after close().
  result<void> enter(std::uint64_t bytes, steady_time deadline, submitter who = submitter::caller);
  /// Like enter(), but does not wait: returns false if full.
  result<bool> try_enter(std::uint64_t bytes, submitter who = submitter::caller);

  /// Call when jobs stop waiting, once per job: a job that waits again after a death is not counted again.
  void begun(std::uint64_t jobs);
  /// Call when a job has ended and its argument of `bytes` bytes has been freed.
  void ended(std::uint64_t bytes);
  /// kept(): a result has left its slot; let_go(): it was freed. kept() never waits and may exceed the limit,
  /// because a finished result is never refused; jobs wait instead.
  holding kept(std::uint64_t job, std::uint64_t bytes);
  void let_go(holding what);

  /// Refuses every waiting and future caller with `why`.
  void close(failure why);

  // For the job scheduler.

  struct room {
    std::uint64_t kept = 0;     ///< bytes of results that callers hold
    std::uint64_t results = 0;  ///< bytes that results may still take
    std::uint64_t freed = 0;    ///< running total
  };
  [[nodiscard]] room room_now() const;
  [[nodiscard]] std::uint64_t results_before(std::uint64_t job);
  /// Reports how many jobs run, and the first job that lacks memory. wake() is then called once that much
  /// memory has been freed after `since` was read.
  void decided(std::uint64_t running, const std::optional<schedule::job_book::memory_lack>& lack,
               const room& since);
  /// Call before any job is submitted. `wake` runs on any thread, without our locks held.
  void wake_with(std::function<void()> wake) { wake_ = std::move(wake); }

  // For waiting threads.

  /// What this thread waits for, if nothing can happen until it frees a result itself.
  [[nodiscard]] std::optional<std::string> waits_for_itself(steady_time now);

  struct counts {
    std::uint64_t waiting = 0;
    std::uint64_t argument_bytes = 0;
    std::uint64_t result_bytes = 0;
    bool callers_wait = false;             ///< a caller waits in enter()
    bool callers_hold_everything = false;  ///< nothing starts or enters until callers free results
  };
  [[nodiscard]] counts now() const;
  [[nodiscard]] std::uint64_t memory() const noexcept { return bounds_.memory(); }

 private:
  [[nodiscard]] result<void> possible(std::uint64_t bytes) const;
  [[nodiscard]] std::string held() const;
  [[nodiscard]] std::optional<std::string> own_wait(steady_time now);
  /// Calls free(), which gives back memory, and notifies waiting threads.
  template <class Free>
  void make_room(Free free);
  [[nodiscard]] bool wake_is_due() noexcept;

  const home_process home_;
  mutable std::mutex mutex_;
  schedule::job_bounds bounds_;
  std::condition_variable room_;
  std::uint32_t waiting_ = 0;
  std::optional<failure> closed_;
  std::optional<std::uint64_t> wake_at_;  // call wake() when the total of freed bytes reaches this
  std::function<void()> wake_;
};

}  // namespace penstock::jobs
