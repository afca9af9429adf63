// Admission of jobs to a pool: enforces its bounds ([jobs] queue and memory). Counts jobs that wait, argument
// bytes of jobs that have not ended, and result bytes that callers keep outside of slots. Thread-safe.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/result.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace penstock::jobs {

class admission {
 public:
  /// At most `queue` jobs may wait, and at most `memory` bytes may be held.
  admission(std::uint64_t queue, std::uint64_t memory) : queue_(queue), memory_(memory) {}

  /// Waits until there is room for one more job, at most until `deadline`. Refuses with errc::timed_out,
  /// naming what is full; with errc::out_of_memory at once if `bytes` can never fit; with close()'s failure
  /// once that was called.
  result<void> enter(std::uint64_t bytes, steady_time deadline);
  /// The same without waiting; false if full.
  result<bool> try_enter(std::uint64_t bytes);

  /// These jobs are no longer waiting. Call once per job: a job that waits again after a death is not counted
  /// again.
  void begun(std::uint64_t jobs);
  /// A job has ended and its argument of `bytes` bytes is freed.
  void ended(std::uint64_t bytes);
  /// A result was moved out of its slot (kept), and freed later (let_go). kept() never waits and may exceed
  /// the bound: a finished result is never refused; enter() waits instead.
  void kept(std::uint64_t bytes);
  void let_go(std::uint64_t bytes);

  /// Every waiting and future caller is refused with `why`.
  void close(failure why);

  struct counts {
    std::uint64_t waiting = 0;
    std::uint64_t argument_bytes = 0;
    std::uint64_t result_bytes = 0;
  };
  [[nodiscard]] counts now() const;
  [[nodiscard]] std::uint64_t memory() const noexcept { return memory_; }

 private:
  [[nodiscard]] bool fits(std::uint64_t bytes) const;
  [[nodiscard]] result<void> possible(std::uint64_t bytes) const;

  const std::uint64_t queue_;
  const std::uint64_t memory_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::uint32_t asking_ = 0;
  counts counts_;
  std::optional<failure> closed_;
};

}  // namespace penstock::jobs
