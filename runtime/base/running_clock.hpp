// A clock that stops while its process does not run: under SIGSTOP or a debugger, in a frozen container, on a
// suspended machine, or when starved of CPU. A peer's silence in that time proves nothing (rules W10 and G23).
// Pure; the books of a group use it to measure a peer's silence.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>

namespace penstock {

class running_clock {
 public:
  /// `look_every`: a running process reads the clock at least this often.
  constexpr running_clock(steady_time now, nanoseconds look_every)
      : counted_a_look_max_(2 * look_every), looked_(now), ran_(now) {}

  /// Call on every event. Returns the running time so far. Of the time since the previous call, at most two
  /// intervals count: for the rest, the process was not running.
  constexpr steady_time look(steady_time now) {
    const nanoseconds passed = std::max<nanoseconds>(now - looked_, nanoseconds(0));
    const nanoseconds counted = std::min(passed, counted_a_look_max_);
    looked_ += passed;
    ran_ += counted;
    stood_still_ += passed - counted;
    return ran_;
  }
  /// The running time at the last look().
  [[nodiscard]] constexpr steady_time ran() const noexcept { return ran_; }
  /// The total time that was not counted.
  [[nodiscard]] constexpr nanoseconds stood_still() const noexcept { return stood_still_; }

 private:
  nanoseconds counted_a_look_max_;
  steady_time looked_;
  steady_time ran_;
  nanoseconds stood_still_{0};
};

}  // namespace penstock
