// The keeper of the GPU owner's process (placement = "process"). With a group's communicator, it also keeps
// an owner inside this process (actors/session/owner_inside). To the other actors it is the GPU owner and
// accepts the same messages. It starts penstock-gpu and forwards messages to it. When the process dies, it
// starts another one and resends what that one needs. supervision::owner_supervision makes the decisions;
// this actor translates.
//
//   receives  what a GPU owner receives                                                    from session and scheduler
//             owner_started, owner_refused, owner_spoke, owner_lost_link, owner_exited     from owner_process
//             restart_owner                                                                from the operator
//   sends     open_owner, prepare_owner, map_partition, upload_slots or upload_jobs, wire_communicate, stop_owner   to the process
//             batches_delivered, slots_released, owner_lost                                to the scheduler
//             through job_upload_listener: the same, in a pool of jobs
//             through keeper_listener: everything else
//   owns      the process, its link, and what every incarnation must get
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/device/device.hpp"

#include <penstock/config.hpp>

namespace penstock::supervisor {

struct keeper_deps {
  config settings;
  std::string sink = "null";
  std::string out;
  bool digests = false;
  std::uint32_t flight_page = 0;
  std::shared_ptr<child_starter<std::uint32_t>> process;
  std::shared_ptr<scheduler::delivery_queue> deliveries;
  std::shared_ptr<batch_times> times;  ///< records the times of batch stages; may be null
  std::shared_ptr<arena::flight_recorders> flights;
  keeper_listener* listener = nullptr;      ///< outlives the actor
  job_upload_listener* jobs = nullptr;  ///< in a pool; outlives the actor. The scheduler then gets nothing.
};

owner_keeper_actor spawn_owner_keeper(actors::actor_system& system, keeper_deps deps);

}  // namespace penstock::supervisor
