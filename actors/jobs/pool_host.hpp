// The host of a pool's workers: an actor on a thread of its own, where it may block. Compares what functions worker
// programs serve, and reserves a place's memory before its first worker runs.
//
//   hears   worker_serves, worker_described                 from the supervisor
//   says    partition_prepared                              to the supervisor
//           functions_known, partition_mapped               to the job scheduler
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "runtime/arena/arena.hpp"

#include <cstdint>
#include <memory>

namespace caf {
class actor_system;
}

namespace penstock::jobs {

/// What the host tells its pool; may be called on its thread.
class host_news {
 public:
  /// The run cannot go on.
  virtual void gave_up(const failure& why) = 0;

 protected:
  ~host_news() = default;
};

struct host_surroundings {
  std::shared_ptr<arena::arena> memory;  ///< sized and sealed
  std::uint32_t rows_max = 0;            ///< of a lease
  std::uint64_t elsewhere_max = 0;       ///< bytes that one result may take outside of its slot
  host_news* news = nullptr;             ///< outlives the actor
};

pool_host_actor spawn_pool_host(caf::actor_system& system, host_surroundings around);

}  // namespace penstock::jobs
