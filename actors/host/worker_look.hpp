// What the workers are doing at this moment, from their flight records and the kernel: read once for both the limits and
// the tuning. Used on the io thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/clock.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <vector>

namespace penstock::host {

/// Times and samples are running totals of this incarnation.
struct worker_look {
  std::uint32_t id = 0;
  std::uint32_t incarnation = 0;
  bool ready = false;
  bool starts = false;  ///< it is starting, or waits for its restart
  bool busy = false;    ///< it is working on a sample or job
  bool reads = false;   ///< a read from storage is in progress
  nanoseconds cpu{0};
  nanoseconds core_wait{0};  ///< time in which it could run but had no core
  std::uint64_t samples = 0;
};

/// Leaves out the worker in `sacrificial_place`: it works on suspects only.
[[nodiscard]] std::vector<worker_look> look_at_workers(const session_status& status,
                                                       const arena::flight_recorders& flights,
                                                       std::uint32_t sacrificial_place);

}  // namespace penstock::host
