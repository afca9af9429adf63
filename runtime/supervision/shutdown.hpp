// How the time of an orderly end is shared among its parts. Pure; used by the session.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::supervision {

/// Of the 25 s that an end takes at most by default, workers get 10 s to finish the sample at hand, the owner
/// 8 s to drain uploads and sinks and 4 s to leave, and 3 s remain for killing who is still there. A shorter
/// or longer end has the same shares. Each part begins when the one before it is over, early or not.
struct shutdown_shares {
  nanoseconds items{};    ///< then workers are killed
  nanoseconds owner{};    ///< then the owner's process is killed
  nanoseconds killing{};  ///< then what survives SIGKILL is left behind
};

/// Even an end "at once" waits for the kernel: processes that were killed are gone within milliseconds.
constexpr nanoseconds shortest_killing = std::chrono::seconds(1);

constexpr shutdown_shares shares_of(nanoseconds in_all) {
  const nanoseconds part = in_all / 25;
  return {part * 10, part * 12, std::max(part * 3, shortest_killing)};
}

}  // namespace penstock::supervision
