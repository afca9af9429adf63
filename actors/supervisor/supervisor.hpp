// The supervisor actor: starts and introduces workers, and detects how they end.
// supervision::worker_supervision decides which workers to start, end and replace; this actor translates,
// reads /proc and the flight recorders, and collects the facts for death reports.
//
//   receives  open_pool, close_pool, operators' orders                        from the session
//             worker_started, start_refused, worker_spoke, worker_lost_link, worker_exited
//                                                                             from worker_processes
//             partition_prepared (memory for a worker)                        from the session
//             blame_decided, want_sacrificial, fence_worker, worker_told_to_stop
//                                                                             from the scheduler
//   sends     open_dataset, assign_slots, stop_work                           to workers
//             worker_joined, worker_drains, worker_ended, worker_written_off  to the scheduler
//             through supervisor_listener                                         everything else
//   owns      the worker processes
//
// Every wait has a deadline: start, heartbeat, item, and the end of each worker that was asked to stop.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/lease_counts.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/supervision/worker_supervision.hpp"

#include <penstock/report.hpp>

#include <memory>
#include <optional>
#include <string>

namespace penstock::supervisor {

struct supervisor_settings {
  supervision::worker_rules rules;
  std::uint32_t landing_slots = 1;  ///< the most slots that a worker on another machine gets
  std::string config;  ///< sent in open_dataset
  work_kind work = work_kind::samples;
  bool jobs_are_told = false;  ///< the program itself reports how each job ended, so a death caused by a job is logged as a detail
};

struct supervisor_deps {
  supervisor_settings settings;
  std::shared_ptr<child_starter<worker_ref>> processes;
  std::shared_ptr<arena::flight_recorders> flights;
  std::shared_ptr<const scheduler::lease_counts> leases;
  supervisor_listener* listener = nullptr;  ///< outlives the actor
};

supervisor_actor spawn_supervisor(actors::actor_system& system, supervisor_deps deps);

}  // namespace penstock::supervisor
