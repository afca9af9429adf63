// A timeout that does not count time during which the watcher itself was not running: stopped by SIGSTOP, on a
// suspended machine, or starved of CPU. An event missed during that time proves nothing about what is being
// watched. Pure; used by the GPU owner, by code that polls a stream, and by patient_wait.hpp.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>

namespace penstock {

/// How often a thread that waits for up to `limit` should check: eight times, and at least every `longest`.
[[nodiscard]] constexpr nanoseconds look_interval(nanoseconds limit, nanoseconds longest) {
  return std::clamp<nanoseconds>(limit / 8, std::chrono::milliseconds(1), longest);
}

/// Each check counts at most twice the interval between checks: a watcher that is always a little late counts
/// all of the time; a watcher that slept for an hour counts two intervals.
class patient_deadline {
 public:
  /// Expires when nothing has happened for more than `limit`. Call is_over() every `look_every`, a small
  /// fraction of `limit`: look_interval().
  constexpr patient_deadline(nanoseconds limit, nanoseconds look_every)
      : limit_(limit), counted_a_look_max_(2 * look_every) {}

  /// Restarts the timeout, because the watched work has started or made progress.
  constexpr void restart(steady_time now) {
    counted_ = nanoseconds(0);
    looked_ = now;
  }
  /// Call after each check that found no progress. Returns whether the timeout has expired.
  [[nodiscard]] constexpr bool is_over(steady_time now) {
    counted_ += std::clamp<nanoseconds>(now - looked_, nanoseconds(0), counted_a_look_max_);
    looked_ = now;
    return counted_ > limit_;
  }

  /// Time counted since restart().
  [[nodiscard]] constexpr nanoseconds counted() const noexcept { return counted_; }
  [[nodiscard]] constexpr nanoseconds limit() const noexcept { return limit_; }

 private:
  nanoseconds limit_;
  nanoseconds counted_a_look_max_;
  nanoseconds counted_{0};
  steady_time looked_{};
};

}  // namespace penstock
