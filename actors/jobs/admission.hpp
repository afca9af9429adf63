// Who may still submit: the bounds of a pool ([jobs] queue and memory), kept where every thread can ask. Counts jobs that
// wait, argument bytes of jobs that have not ended, and result bytes that callers keep outside of slots. Thread-safe.
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
  /// `queue` jobs may wait, and `memory` bytes may be held in all.
  admission(std::uint64_t queue, std::uint64_t memory) : queue_(queue), memory_(memory) {}

  /// Waits for room for one more job, at most until `deadline`. Refuses: errc::timed_out, saying what is full;
  /// errc::out_of_memory at once if `bytes` can never fit; the failure of close() once that was called.
  result<void> enter(std::uint64_t bytes, steady_time deadline);
  /// Without waiting; false: full.
  result<bool> try_enter(std::uint64_t bytes);

  /// These jobs do not wait any more; those that wait again after a death do not count again.
  void begun(std::uint64_t jobs);
  /// A job has ended: its argument is dropped.
  void ended(std::uint64_t bytes);
  /// A result left its slot, and was let go. Never waits: what was promised is kept, submitting waits for it.
  void kept(std::uint64_t bytes);
  void let_go(std::uint64_t bytes);

  /// From now on everybody who asks gets this answer.
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
