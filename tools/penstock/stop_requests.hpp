// Counts how often the user has asked a program to stop. Used by stop_signals.
#pragma once

#include "runtime/base/clock.hpp"

namespace penstock::cli {

/// Several signals may be one request: timeout(1) signals a process and then its group, systemd signals a rank that its launcher
/// signals, too, and with PR_SET_PDEATHSIG the kernel reports a hang-up whenever one of the parent's threads exits. Pure.
class stop_requests {
 public:
  /// Signals this soon after a counted one belong to the same request. Nobody presses Ctrl-C twice in that time.
  static constexpr nanoseconds one_request{100'000'000};

  /// The number of the request that this signal begins, from 1; 0: it begins none.
  [[nodiscard]] int begun_by(int signal, steady_time now);

 private:
  int begun_ = 0;
  steady_time last_{};
};

}  // namespace penstock::cli
