// Detects afterwards that this process was suspended by SIGSTOP or a debugger, or with its container or machine.
// Pure; driven by actors/host/standstill_meter, several times a second.
#pragma once

#include "runtime/base/clock.hpp"

#include <optional>
#include <utility>

namespace penstock::supervision {

class standstill_watch {
 public:
  /// Shorter suspensions are not reported as events.
  static constexpr nanoseconds reported_from = std::chrono::seconds(1);

  /// `every`: the usual time between two calls to look().
  constexpr explicit standstill_watch(nanoseconds every) : every_(every) {}

  /// `now`: from a clock that also runs while the machine is suspended. `accounted`: the total time that this thread ran,
  /// or could have run but had no core: so neither long work nor an overloaded machine counts as a
  /// suspension. Returns how long the process was suspended since the previous look, if it was.
  [[nodiscard]] constexpr std::optional<nanoseconds> look(nanoseconds now, nanoseconds accounted) {
    const std::optional<seen> before = std::exchange(before_, seen{now, accounted});
    if (!before) return std::nullopt;
    const nanoseconds passed = now - before->at;
    const bool stood = passed - (accounted - before->accounted) >= reported_from + every_;
    return stood ? std::optional(passed) : std::nullopt;
  }

 private:
  struct seen {
    nanoseconds at;
    nanoseconds accounted;
  };
  nanoseconds every_;
  std::optional<seen> before_;
};

}  // namespace penstock::supervision
