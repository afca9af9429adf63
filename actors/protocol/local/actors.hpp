// The actors of one session and their messages: the typed interface of each actor, in the order in which a
// batch passes them. The messages are next to this file, one header per receiving actor.
//
//   session ----------- open_pool, close_pool, orders of operators ------------> supervisor
//      |  \                                                                        |   ^
//      |   +-- open_stream, seek_stream, pause_stream ... --> scheduler <- joined, |   | blame_decided, want_sacrificial,
//      |                                                       |    ^    ended ----+   | fence_worker, worker_told_to_stop
//      |                                       upload_batches  |    |  slots_released, |
//      v                                                       v    |  owner_lost      +---- scheduler
//   session actor -- prepare_device, attach_partition --> GPU owner, or the keeper of its process
//      ^
//      |   (in a group: device_ready comes once all ranks have joined, from the member's news)
//      +-- device_ready, worker_described, worker_serves, sample_quarantined
//
// The lists of messages come first, and after them the messages that contain handles, because CAF must know a
// message before a handle to an actor that receives it is used. None of these messages leaves the process; those
// that do are in actors/protocol/messages.hpp. Actors get the other actors' handles through `meet`, once all
// actors exist, and drop them when they exit, because the handles form cycles. The GPU owner has no handles: in
// its own process there are no other actors.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/group_actor_messages.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "actors/protocol/local/owner_keeper_messages.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "actors/protocol/local/session_messages.hpp"
#include "actors/protocol/local/supervisor_messages.hpp"

#include <type_traits>

namespace penstock::protocol {

using actors::hears;

struct meet;

}  // namespace penstock::protocol

// ---- what each actor receives -----------------------------------------------------------------------------

namespace penstock::gpu_owner {

/// Messages to an owner in this process, or to the keeper of an owner in another process.
using heard = protocol::hears<open_device, prepare_device, attach_partition, upload_batches, buffers_released,
                              communicate, close_device>;
using gpu_owner_actor = heard::actor;
/// Includes the messages that the owner sends to itself.
using working = heard::and_also<device_moved, look_at_device, look_at_communicator>;

}  // namespace penstock::gpu_owner

namespace penstock::scheduler {

/// Messages from the supervisor to the actor that gives leases to workers: the scheduler of a stream, or the
/// job scheduler of a pool.
using heard_of_workers =
    protocol::hears<worker_joined, worker_ended, worker_written_off, worker_drains, cannot_try_alone>;
using lease_giver = heard_of_workers::actor;

using heard = heard_of_workers::and_also<open_stream, place_prepared, leases_reported, slots_released, batches_delivered,
                                         owner_lost, seek_stream, pause_stream, lift_quarantine,
                                         tell_accounts, decide, look_for_late_workers, gate_moved, stop_scheduling, protocol::meet>;
using scheduler_actor = heard::actor;

}  // namespace penstock::scheduler

namespace penstock::supervisor {

struct meet_others;

using heard =
    protocol::hears<open_pool, close_pool, worker_started, start_refused, worker_spoke, worker_lost_link,
                    worker_exited, partition_prepared, blame_decided, want_sacrificial, fence_worker,
                    cancel_worker, limits_in_use, worker_told_to_stop, when_handled, scale_pool,
                    host_place_joined, host_place_left, host_refused, restart_worker, drain_worker, tick, wake, meet_others>;
using supervisor_actor = heard::actor;

/// The keeper of the GPU owner's process stands in for the owner, so it accepts all of the owner's messages.
using heard_by_keeper =
    gpu_owner::heard::and_also<owner_started, owner_refused, owner_spoke, owner_lost_link, owner_exited,
                               restart_owner, keeper_tick, wake_keeper, protocol::meet>;
using owner_keeper_actor = heard_by_keeper::actor;

}  // namespace penstock::supervisor

namespace penstock::session {

/// Messages from the supervisor to the actor that prepares places for workers: the session actor, or the host
/// of a pool.
using heard_by_host = protocol::hears<worker_described, worker_serves>;
using worker_host = heard_by_host::actor;

using heard =
    heard_by_host::and_also<device_ready, reserve_more, sample_quarantined, quarantine_released, leave, protocol::meet>;
using session_actor = heard::actor;

}  // namespace penstock::session

namespace penstock::jobs {

struct meet_supervisor;
struct meet_owner;
struct meet_pool;

/// The job scheduler replaces a stream's scheduler.
using heard = scheduler::heard_of_workers::and_also<jobs_submitted, jobs_reported, results_released, end_job,
                                                    functions_known, partition_mapped, pause_jobs, cancel_all,
                                                    device_answered, device_lost, device_failed, meet_owner,
                                                    decide_jobs, stop_jobs, meet_supervisor>;
using job_scheduler_actor = heard::actor;

/// The host of a pool replaces a stream's session actor.
using heard_by_host = session::heard_by_host::and_also<session::leave, meet_pool>;
using pool_host_actor = heard_by_host::actor;

}  // namespace penstock::jobs

namespace penstock::group {

/// A session in a group has a member; rank 0's session has the coordinator as well. They know no other actor.
using heard_by_member =
    protocol::hears<join_group, stream_described, stream_delivered, session_failed, stop_group, limit_reached,
                    communicator_told, snapshots_held, orders_arrived, link_made, link_lost,
                    coordinator_ended, coordinator_held, cannot_listen, peer_refused, links_refused,
                    leave_group, drop_group, group_beat>;
using member_actor = heard_by_member::actor;
using heard_by_coordinator =
    protocol::hears<reports_arrived, member_closed, member_process_ended, member_held, address_taken,
                    address_refused, unknown_peer_came, communicator_drawn, links_refused, leave_group,
                    drop_group, group_beat>;
using coordinator_actor = heard_by_coordinator::actor;

}  // namespace penstock::group

namespace penstock::protocol {

using heard_inside = actors::joined<gpu_owner::working, scheduler::heard, supervisor::heard,
                                    supervisor::heard_by_keeper, session::heard, jobs::heard,
                                    jobs::heard_by_host, group::heard_by_member, group::heard_by_coordinator>;
/// The number of the list of all these messages; an actor system is created with it.
inline constexpr std::integral_constant<int, 0> local_messages{};

}  // namespace penstock::protocol

PENSTOCK_ACTOR_MESSAGES(0, penstock::protocol::heard_inside)

// ---- how the actors learn of each other -------------------------------------------------------------------

namespace penstock::protocol {

/// The actors of a session.
struct peers {
  gpu_owner::gpu_owner_actor owner;
  scheduler::scheduler_actor scheduler;
  supervisor::supervisor_actor supervisor;
  session::session_actor session;
};
struct meet {
  peers others;
};

}  // namespace penstock::protocol

namespace penstock::supervisor {

/// The actors that the supervisor reports to, in a session or in a pool.
struct meet_others {
  scheduler::lease_giver leases;
  session::worker_host host;
};

}  // namespace penstock::supervisor

namespace penstock::jobs {

struct meet_supervisor {
  supervisor::supervisor_actor supervisor;
};
/// `owner` is null in a pool without a GPU owner, in which no job may request one.
struct meet_owner {
  gpu_owner::gpu_owner_actor owner;
};
struct meet_pool {
  job_scheduler_actor scheduler;
  supervisor::supervisor_actor supervisor;
  gpu_owner::gpu_owner_actor owner;  ///< may be null, or the keeper of an owner
};

}  // namespace penstock::jobs
