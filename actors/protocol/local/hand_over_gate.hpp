// Decides whether the next batch may be handed out, in a session that belongs to a group (rules G9, G19 and
// G28). The group's member actor writes it. The thread that hands out batches asks it: the consumer's, or the
// scheduler's when the GPU owner is another process. The gate counts the batches handed out, so that a freeze
// and a hand-over never disagree about a batch.
//
// The gate also remembers that it has answered `wait`. The member could miss that: between two of its steps, the
// right can lapse, the gate can answer `wait`, and the right can be extended.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace penstock::group {

enum class gate_answer : std::uint8_t {
  go,
  wait,  ///< not now: the group has not begun, is stopping, or has been silent for too long
  over,  ///< never: no batch follows
};

/// Steps count batches from the beginning of the stream, so that a replaced rank continues the count.
/// Thread-safe.
class hand_over_gate {
 public:
  /// `at_limit` is called when the last step of a stopping group has been handed out, on the thread that did
  /// so.
  explicit hand_over_gate(std::function<void()> at_limit = {}) : at_limit_(std::move(at_limit)) {}

  // ---- for the member actor; each returns the number of steps handed out

  /// Steps up to `limit` may be handed out until that time.
  std::uint64_t open(steady_time until, std::optional<std::uint64_t> limit) {
    const std::lock_guard hold(mutex_);
    until_ = until;
    limit_ = limit;
    changed_.notify_all();
    return handed_out_;
  }
  std::uint64_t shut() {
    const std::lock_guard hold(mutex_);
    until_ = steady_time::min();
    return handed_out_;
  }
  /// All ranks have the same dataset: batches may be prepared. True: this is the first call.
  [[nodiscard]] bool begin() {
    const std::lock_guard hold(mutex_);
    return !std::exchange(begun_, true);
  }
  /// Whether a step was answered with `wait` since the last call. Call after each open() and end(): the thread that hands out
  /// batches must then ask again.
  [[nodiscard]] bool take_waiting() {
    const std::lock_guard hold(mutex_);
    return std::exchange(waiting_, false);
  }
  /// No new step from now on.
  void end() {
    const std::lock_guard hold(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  // ---- for the thread that hands out

  /// Sets the step after which the stream begins. Call before any step is handed out.
  void start_at(std::uint64_t step) {
    const std::lock_guard hold(mutex_);
    handed_out_ = step;
  }
  /// Hands out the next step if the answer is `go`.
  gate_answer hand_out_next(steady_time now) {
    std::unique_lock hold(mutex_);
    return hand_out(handed_out_ + 1, now, hold);
  }
  /// Hands out the step with this number if the answer is `go`. A step may be handed out again: its receiver
  /// may have died.
  gate_answer hand_out(std::uint64_t step, steady_time now) {
    std::unique_lock hold(mutex_);
    return hand_out(step, now, hold);
  }
  /// Waits for a change, at most this long.
  void wait_for_change(nanoseconds at_most) {
    std::unique_lock hold(mutex_);
    if (!over_) changed_.wait_for(hold, at_most);
  }
  [[nodiscard]] bool begun() const {
    const std::lock_guard hold(mutex_);
    return begun_;
  }
  [[nodiscard]] std::uint64_t handed_out() const {
    const std::lock_guard hold(mutex_);
    return handed_out_;
  }
  /// True if no new step follows and this step is the last.
  [[nodiscard]] bool ends_with(std::uint64_t step) const {
    const std::lock_guard hold(mutex_);
    return over_ && step >= handed_out_;
  }

 private:
  gate_answer hand_out(std::uint64_t step, steady_time now, std::unique_lock<std::mutex>& hold) {
    const bool again = step <= handed_out_;
    if (over_) return again ? gate_answer::go : gate_answer::over;
    if (now >= until_ || (!again && limit_ && step > *limit_)) {
      waiting_ = true;
      return gate_answer::wait;
    }
    handed_out_ = std::max(handed_out_, step);
    const bool last = !again && limit_ && step == *limit_;
    hold.unlock();
    if (last && at_limit_) at_limit_();
    return gate_answer::go;
  }

  const std::function<void()> at_limit_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  steady_time until_ = steady_time::min();
  std::optional<std::uint64_t> limit_;
  std::uint64_t handed_out_ = 0;
  bool begun_ = false;
  bool waiting_ = false;
  bool over_ = false;
};

}  // namespace penstock::group
