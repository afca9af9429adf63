// A wait for a batch whose workers died, as a data loader's pool reports it to the limits (rule W31).
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>

namespace penstock {

/// The part of the consumer's wait for such a batch that lies before its last lease.
struct lost_wait {
  std::uint64_t number = 0;     ///< 1, 2, 3, ... in one loader; 0: the wait is in progress
  steady_time first_leased{};   ///< when the first worker that died got the batch
  steady_time from{};
  steady_time to{};
};

}  // namespace penstock
