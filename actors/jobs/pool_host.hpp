// The host of a pool's workers: an actor on its own thread, which may block. Reserves and maps the memory of places for workers, as
// schedule::partition_book decides.
//
//   receives  worker_serves, worker_described                 from the supervisor
//   sends     partition_prepared                              to the supervisor
//             functions_known, partition_mapped               to the job scheduler
//             attach_partition                                to the GPU owner
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "runtime/arena/arena.hpp"

#include <cstdint>
#include <memory>

namespace penstock::actors {
class actor_system;
}

namespace penstock::jobs {

/// What the host reports to its pool. May be called on the host's thread.
class pool_host_listener {
 public:
  /// Called when the run must fail.
  virtual void gave_up(const failure& why) = 0;

 protected:
  ~pool_host_listener() = default;
};

struct pool_host_deps {
  std::shared_ptr<arena::arena> memory;  ///< sized and sealed
  std::uint32_t rows_max = 0;            ///< jobs per lease
  std::uint64_t elsewhere_max = 0;       ///< maximum bytes of a result outside its slot
  pool_host_listener* listener = nullptr;             ///< outlives the actor
};

pool_host_actor spawn_pool_host(actors::actor_system& system, pool_host_deps deps);

}  // namespace penstock::jobs
