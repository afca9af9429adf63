// Mirrors the flight page of a remote worker into the session's, and stands in for it while nothing arrives. Used by
// remote_connection, on its thread.
#pragma once

#include "actors/remote/host_messages.hpp"
#include "actors/remote/lent_jobs.hpp"
#include "runtime/arena/flight_recorder.hpp"

#include <cstdint>

namespace penstock::hosts {

class flight_mirror {
 public:
  explicit flight_mirror(arena::flight_recorders* pages) : pages_(pages) {}

  /// Call for a new worker, before anything has been received from it.
  void restart();
  /// `jobs`: null for a stream.
  void show(std::uint32_t place, const flight_seen& seen, lent_jobs* jobs);
  /// Call while the host's messages wait behind a transfer, or nothing arrives: makes the worker look alive. Whether the host
  /// is lost depends on lost_after alone (rule H5).
  void stand_in(std::uint32_t place);

 private:
  void pause_clocks();
  void show(std::uint32_t place);

  arena::flight_recorders* const pages_;
  arena::flight_reading flight_;  // the page as last mirrored
  steady_time mirrored_at_{};
  std::uint32_t signs_ = 0;  // signs of life that stand_in() has made up
};

}  // namespace penstock::hosts
