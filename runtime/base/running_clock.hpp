// A clock that stands still while its process does: stopped by SIGSTOP or a debugger, frozen with its container, on a
// suspended machine, or starved of CPU. Silence in that time proves nothing about the peer (rules W10 and G23). Pure; used
// by the books of a group, which measure by it how long they have heard nothing.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>

namespace penstock {

class running_clock {
 public:
  /// `look_every`: how often a process that runs looks at the clock, at least.
  constexpr running_clock(steady_time now, nanoseconds look_every)
      : counted_a_look_max_(2 * look_every), looked_(now), ran_(now) {}

  /// Call with every event. The time up to now, without that in which the process stood still: between two looks at most
  /// two intervals count.
  constexpr steady_time look(steady_time now) {
    const nanoseconds passed = std::max<nanoseconds>(now - looked_, nanoseconds(0));
    const nanoseconds counted = std::min(passed, counted_a_look_max_);
    looked_ += passed;
    ran_ += counted;
    stood_still_ += passed - counted;
    return ran_;
  }
  /// As of the last look.
  [[nodiscard]] constexpr steady_time ran() const noexcept { return ran_; }
  /// All the time that was not counted.
  [[nodiscard]] constexpr nanoseconds stood_still() const noexcept { return stood_still_; }

 private:
  nanoseconds counted_a_look_max_;
  steady_time looked_;
  steady_time ran_;
  nanoseconds stood_still_{0};
};

}  // namespace penstock
