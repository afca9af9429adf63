// Says by how long to postpone deadlines when the process that watches them did not run, because it was stopped or its
// machine slept (rule W10). Messages that arrived in that time have not been read yet. Pure; used for the deadlines of
// child processes.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <optional>

namespace penstock {

class late_polls {
 public:
  /// `late_after`: a poll this long after the previous one is late. `now`: the time of the first poll, if known.
  constexpr explicit late_polls(nanoseconds late_after, std::optional<steady_time> now = {})
      : late_after_(late_after), polled_(now) {}

  /// Call at every poll. Returns the time since the previous one if this one is late, and 0 otherwise.
  constexpr nanoseconds missed(steady_time now) {
    const nanoseconds since = now - polled_.value_or(now);
    polled_ = std::max(polled_.value_or(now), now);
    return since > late_after_ ? since : nanoseconds(0);
  }

 private:
  nanoseconds late_after_;
  std::optional<steady_time> polled_;
};

constexpr void postpone(steady_time& deadline, nanoseconds by) {
  if (deadline != never) deadline += by;
}

}  // namespace penstock
