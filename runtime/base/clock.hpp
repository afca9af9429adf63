// Points in time, as used in decisions. Pure cores take them as arguments; only actors and OS code read the clock.
#pragma once

#include <chrono>

namespace penstock {

using steady_time = std::chrono::steady_clock::time_point;
using std::chrono::nanoseconds;

/// "No time": nothing is due.
inline constexpr steady_time never = steady_time::max();

}  // namespace penstock
