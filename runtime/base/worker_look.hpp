// What a worker is doing at one moment. Read once and used twice: for the limits (telemetry) and for the tuning
// (supervision).
#pragma once

#include "runtime/base/clock.hpp"

#include <cstdint>

namespace penstock {

/// Running totals of a worker on another machine.
struct remote_times {
  nanoseconds cpu{0};        ///< CPU time of its working thread
  nanoseconds core_wait{0};
  nanoseconds receiving{0};  ///< how long its batches or results were on their way here
  bool rests = false;        ///< probably idle: the transfer in progress has taken longer than loading a batch
};

/// Times are running totals of the worker's working thread; samples are those of this incarnation.
struct worker_look {
  std::uint32_t id = 0;
  std::uint32_t incarnation = 0;
  bool ready = false;
  bool starts = false;  ///< the worker is starting, or waits for its restart
  bool busy = false;    ///< the worker has a sample or job in progress
  bool reads = false;   ///< a read from storage is in progress
  nanoseconds cpu{0};
  nanoseconds core_wait{0};  ///< how long its thread was ready to run but had no core
  std::uint64_t samples = 0;
  bool remote = false;       ///< whether it is on a loader host
  nanoseconds receiving{0};  ///< if remote: how long its batches were on their way here
  nanoseconds sample_for{0};  ///< how long it has been loading its current sample; 0: it is loading none
};

}  // namespace penstock
