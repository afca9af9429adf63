// Notices afterwards that this process was suspended: SIGSTOP, a debugger, a frozen container, a suspended machine.
// Pure; driven by actors/host/standstill_meter, several times a second.
#pragma once

#include "runtime/base/clock.hpp"

#include <optional>

namespace penstock::supervision {

class standstill_watch {
 public:
  /// Shorter ones are not worth an event.
  static constexpr nanoseconds reported_from = std::chrono::seconds(1);

  /// `every`: the time between rests() and the next look().
  constexpr explicit standstill_watch(nanoseconds every) : every_(every) {}

  /// Call before each piece of periodic work. `now`: from a clock that also runs while the machine is suspended. `core_wait`:
  /// the total time in which this thread could have run but had no core: an overloaded machine is not a standstill. Returns how
  /// long the process was suspended since rests(), if it was.
  [[nodiscard]] constexpr std::optional<nanoseconds> look(nanoseconds now, nanoseconds core_wait) const {
    if (rested_ == nanoseconds::min()) return std::nullopt;
    const nanoseconds passed = now - rested_;
    const bool stood = passed - (core_wait - core_wait_) >= reported_from + every_;
    return stood ? std::optional(passed) : std::nullopt;
  }
  /// Call after the work, whose duration does not count.
  constexpr void rests(nanoseconds now, nanoseconds core_wait) {
    rested_ = now;
    core_wait_ = core_wait;
  }

 private:
  nanoseconds every_;
  nanoseconds rested_ = nanoseconds::min();
  nanoseconds core_wait_{0};
};

}  // namespace penstock::supervision
