// The session actor: sizes everything at startup. It has its own thread so that it can block without delaying
// other actors: sizing, sealing and reserving shared memory takes 0.3 s per GiB. It reserves the first slots of each
// worker at once, and the others in parts between messages (rule M10).
//
//   receives  device_ready, worker_described, worker_serves   from the GPU owner and the supervisor
//   sends     open_pool, partition_prepared                   to the supervisor
//             open_stream, place_prepared                     to the scheduler
//             prepare_device, attach_partition                to the GPU owner
//             through stream_listener                             everything else
//   owns      the arena
//
// schedule::partition_book decides which worker gets slots. The first description sizes everything: stream_setup computes how.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/session/sizing.hpp"

#include <penstock/dataset.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace penstock::session {

struct session_deps {
  config settings;
  /// The number of workers currently wanted: scale() may change it until the dataset is known. Thread-safe.
  std::function<std::uint32_t()> workers_wanted;
  std::uint32_t partitions = 2;                 ///< places for workers, and one for the sacrificial worker
  std::optional<sampling> order;                ///< none for custom datasets
  std::optional<dataset_description> expected;  ///< the session's own listing; a custom dataset has one only with loader hosts
  bool from_store = false;                      ///< the dataset's files are objects at URLs
  bool owner_maps_partitions = false;           ///< the GPU owner has a keeper, and maps workers' memory itself
  stream_request request;
  steady_time demanded{};  ///< when the first batch was requested
  std::shared_ptr<arena::arena> memory;
  stream_listener* listener = nullptr;  ///< outlives the actor
};

session_actor spawn_session(actors::actor_system& system, session_deps deps);

}  // namespace penstock::session
