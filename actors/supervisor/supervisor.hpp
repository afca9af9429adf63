// The supervisor actor: starts workers, introduces them, notices how they end, and lets the pool decide who
// lives again.
//
//   hears   open_pool, close_pool, operator orders                      from the session
//           worker_started, start_refused, worker_spoke, worker_lost_link, worker_exited      from
//           worker_processes partition_prepared                                          from the session
//           (memory for a worker) death_judged, want_sacrificial, fence_worker                from the
//           scheduler
//   says    open_dataset, assign_slots                                  to workers
//           through supervisor_news                                     everything that others want to know
//   owns    the pool, the hang detector, the worker processes
//
// A worker's way through its hands:
//
//   started -- hello --> introduced -- dataset_described --> waiting for memory -- partition_prepared -->
//   assigned
//     -- worker_ready --> ready (handed to the scheduler) -- exited --> judged (by the scheduler) --> pool
//     decides
//
// All waiting has a deadline: start, heartbeat and item timeouts, and the end of every worker that was told
// to go.
#pragma once

#include "actors/scheduler/scheduler.hpp"
#include "actors/supervisor/worker_processes.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/supervision/hang_detector.hpp"
#include "runtime/supervision/pool.hpp"

#include <penstock/report.hpp>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace penstock::supervisor {

struct open_pool {};
/// Nothing is started any more; workers finish their sample. Who is not gone in time is killed.
struct close_pool {
  nanoseconds patience{0};
};

struct worker_started {
  worker_ref who;
  pid_t pid = -1;
  std::shared_ptr<protocol::worker_link> link;
};
struct start_refused {
  worker_ref who;
  failure why;
};
/// Anything but batch_loaded, which goes to the scheduler.
struct worker_spoke {
  worker_ref who;
  protocol::from_worker message;
};
struct worker_lost_link {
  worker_ref who;
  std::string reason;
};
struct worker_exited {
  worker_ref who;
  process::exit_report report;
  std::string last_lines;
  std::vector<std::string> stack;  ///< where it stood, if it could still say
};
struct partition_prepared {
  worker_ref who;
  std::optional<protocol::assign_slots> slots;  ///< none: refused, and the run has failed elsewhere
};
struct death_judged {
  scheduler::judgement verdict;
};
struct want_sacrificial {
  bool wanted = false;
};
struct fence_worker {
  worker_ref who;
  std::string reason;
};
/// It was told to end, having nothing left to do.
struct worker_sent_home {
  worker_ref who;
};
struct scale_pool {
  std::uint32_t workers = 0;
};
struct restart_worker {
  std::uint32_t worker = 0;
};
struct drain_worker {
  std::uint32_t worker = 0;
};
/// Look at everybody; comes by itself.
struct tick {};
/// Something is due now: a restart, a kill.
struct wake {};

}  // namespace penstock::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::open_pool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::close_pool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::worker_started)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::start_refused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::worker_spoke)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::worker_lost_link)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::worker_exited)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::partition_prepared)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::death_judged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::want_sacrificial)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::fence_worker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::worker_sent_home)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::scale_pool)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::restart_worker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::drain_worker)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::tick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::wake)

namespace penstock::supervisor {

using supervisor_actor = caf::typed_actor<
    caf::reacts_to<open_pool>, caf::reacts_to<close_pool>, caf::reacts_to<worker_started>,
    caf::reacts_to<start_refused>, caf::reacts_to<worker_spoke>, caf::reacts_to<worker_lost_link>,
    caf::reacts_to<worker_exited>, caf::reacts_to<partition_prepared>, caf::reacts_to<death_judged>,
    caf::reacts_to<want_sacrificial>, caf::reacts_to<fence_worker>, caf::reacts_to<worker_sent_home>,
    caf::reacts_to<scale_pool>, caf::reacts_to<restart_worker>, caf::reacts_to<drain_worker>,
    caf::reacts_to<tick>, caf::reacts_to<wake>>;

/// What the supervisor tells the rest of the session; called on a scheduler thread of CAF, must not block.
struct supervisor_news {
  /// A worker is introduced and asks for memory; answered with partition_prepared.
  std::function<void(worker_ref, const protocol::dataset_described&)> worker_described;
  std::function<void(const std::vector<worker_status>&, bool degraded, std::uint32_t started,
                     std::uint32_t restarts)>
      changed;
  std::function<void(const death_report&)> worker_died;
  std::function<void(const failure&)> gave_up;
  std::function<void()> pool_closed;
};

struct supervisor_settings {
  supervision::pool_settings pool;
  supervision::hang_settings hang;
  std::uint64_t memory_max_bytes = 0;       ///< private memory of one worker
  std::uint64_t recycle_after_samples = 0;  ///< 0: never
  std::uint32_t slots_per_worker = 1;
  exclusive_rule exclusive =
      exclusive_rule::report;  ///< what happens to a worker's process that uses the GPU
  std::string config;          ///< for open_dataset
};

struct supervisor_surroundings {
  supervisor_settings settings;
  scheduler::scheduler_actor scheduler;
  std::shared_ptr<worker_processes> processes;
  std::shared_ptr<arena::flight_recorders> flights;
  std::shared_ptr<const scheduler::lease_counts> leases;
  supervisor_news news;
};

supervisor_actor spawn_supervisor(caf::actor_system& system, supervisor_surroundings around);

}  // namespace penstock::supervisor
