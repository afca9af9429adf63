// How the shutdown deadline is divided among its phases. Pure; used by the session.
#pragma once

#include "runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::supervision {

/// By default a shutdown takes at most 25 s: workers get 10 s to finish their sample, the owner 8 s to drain
/// uploads and sinks and 4 s to exit, and 3 s remain to kill what is left. A shorter or longer deadline is
/// divided in the same proportions. Each phase starts when the previous one is over, early or not.
struct shutdown_shares {
  nanoseconds items{};    ///< for workers to finish; then they are killed
  nanoseconds owner{};    ///< for the owner to finish; then its process is killed
  nanoseconds killing{};  ///< for killed processes to end; then those that survive SIGKILL are left behind
};

/// Even an immediate shutdown waits for the kernel: killed processes are gone within milliseconds.
constexpr nanoseconds shortest_killing = std::chrono::seconds(1);

constexpr shutdown_shares shares_of(nanoseconds in_all) {
  const nanoseconds part = in_all / 25;
  return {part * 10, part * 12, std::max(part * 3, shortest_killing)};
}

}  // namespace penstock::supervision
