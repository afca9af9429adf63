// The session actor: makes the parts fit at the start. It may block (it has a thread of its own) so that
// nobody else has to: sizing, sealing and reserving shared memory takes 0.3 s a GiB.
//
//   hears   device_ready, worker_described, worker_serves from the GPU owner and the supervisor
//   says    open_pool, partition_prepared                 to the supervisor
//           open_stream                                   to the scheduler
//           prepare_device, attach_partition              to the GPU owner
//   owns    the arena
//
// The first worker that describes its dataset decides what everything is made for; later ones must say the
// same.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/session/sizing.hpp"

#include <penstock/dataset.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace penstock::session {

struct session_surroundings {
  config settings;
  /// How many workers are wanted now: scale() may change it until the dataset is known. Thread-safe.
  std::function<std::uint32_t()> workers_wanted;
  std::uint32_t partitions = 2;  ///< places for workers, and one for the sacrificial worker
  std::optional<dataset_description>
      expected;  ///< what the session itself has found; none for custom datasets
  stream_request request;
  steady_time demanded{};  ///< when the first batch was asked for
  std::shared_ptr<arena::arena> memory;
  /// The plan is known: how the stream is cut into batches.
  std::function<void(std::shared_ptr<const plan>, std::shared_ptr<const device::transfer_plan>,
                     schedule::stream_range)>
      planned;
  std::function<void(const std::vector<quarantine_report>&)> quarantine_known;
  std::function<void(const failure&)> failed;
};

session_actor spawn_session(caf::actor_system& system, session_surroundings around);

}  // namespace penstock::session
