// The keeper of the GPU owner's process (placement = "process"). To everybody else it is the GPU owner: it
// hears the same messages. It starts penstock-gpu, tells it what it was told, and when the process dies
// starts another one and tells that one the same.
//
//   hears   what a GPU owner hears                                       from session and scheduler
//           owner_started, owner_refused, owner_spoke, owner_lost_link, owner_exited     from owner_process
//           restart_owner                                                from the operator
//   says    open_owner, prepare_owner, map_partition, upload_slots, stop_owner        to the process
//           batch_delivered, slots_released, owner_lost                  to the scheduler
//   owns    the process, the sink's last snapshot, the uploads that are not acknowledged
//
//   starting -- hello --> speaking -- owner_opened --> ready -- exited --> (policy) --> starting ...
//                                                       \--> closing -- exited --> closed
//
// Orders carry an era, which grows with every death: what the scheduler ordered before it knew of the death
// is dropped here, because it will order it again.
//
// A batch is suspected when the process dies with it in the sink's hands and the death is the process's own
// doing (exit 79, SIGSEGV and its like, no end within [gpu.hang] batch_timeout; a SIGKILL from outside says
// nothing about a batch). The second time
// it is poison: semantics 24.
#pragma once

#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/scheduler/scheduler.hpp"
#include "actors/supervisor/owner_process.hpp"
#include "runtime/arena/flight_recorder.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <caf/allowed_unsafe_message_type.hpp>

namespace penstock::supervisor {

struct owner_started {
  std::uint32_t incarnation = 0;
  pid_t pid = -1;
  std::shared_ptr<protocol::owner_link> link;
};
struct owner_refused {
  std::uint32_t incarnation = 0;
  failure why;
};
struct owner_spoke {
  std::uint32_t incarnation = 0;
  protocol::from_owner message;
};
/// It closed its link (empty reason) or broke the protocol. The process may live on.
struct owner_lost_link {
  std::uint32_t incarnation = 0;
  std::string reason;
};
struct owner_exited {
  std::uint32_t incarnation = 0;
  process::exit_report report;
  std::string last_lines;
};
/// An operator's order: never counts.
struct restart_owner {};
/// Look at the clock; comes by itself.
struct keeper_tick {};
/// The backoff is over.
struct start_owner {
  std::uint32_t incarnation = 0;
};
/// The scheduler exists now.
struct meet_scheduler {
  scheduler::scheduler_actor scheduler;
};

}  // namespace penstock::supervisor

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::owner_started)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::owner_refused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::owner_spoke)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::owner_lost_link)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::owner_exited)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::restart_owner)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::keeper_tick)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::start_owner)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::supervisor::meet_scheduler)

namespace penstock::supervisor {

using owner_keeper_actor = gpu_owner::gpu_owner_actor::extend<
    caf::reacts_to<meet_scheduler>, caf::reacts_to<owner_started>, caf::reacts_to<owner_refused>,
    caf::reacts_to<owner_spoke>, caf::reacts_to<owner_lost_link>, caf::reacts_to<owner_exited>,
    caf::reacts_to<restart_owner>, caf::reacts_to<keeper_tick>, caf::reacts_to<start_owner>>;

/// What is known of the owner's process.
struct owner_facts {
  std::string state;  ///< starting, ready, backoff, failed, stopped
  std::optional<pid_t> pid;
  std::uint32_t restarts = 0;
  bool irreplaceable = false;  ///< its death fails the run: its sink keeps state and gives no snapshots
};

/// What the keeper tells the rest of the session; called on a scheduler thread of CAF, must not block.
struct keeper_news {
  std::function<void(const device::identity&)> opened;
  std::function<void(const owner_facts&)> changed;
  std::function<void(const owner_death_report&)> died;  ///< as soon as it is known
  std::function<void(pid_t owner)> reopened;            ///< the replacement has opened the device
  /// Uploads go on after the death of this incarnation.
  std::function<void(std::uint32_t incarnation, double seconds_since_its_end)> recovered;
  std::function<void(std::uint64_t uploads, std::uint64_t bytes, bool pinned)> progressed;
  std::function<void(nanoseconds in_all)> waited;
  std::function<void(std::vector<gpu_process>)> processes_seen;  ///< by NVML, on the GPU
  std::function<void(const failure&)> gave_up;
  std::function<void()> closed;
};

struct keeper_surroundings {
  config settings;
  std::string sink = "null";
  std::string out;
  bool digests = false;
  std::uint32_t flight_page = 0;
  std::shared_ptr<owner_process> process;
  std::shared_ptr<scheduler::delivery_pile> deliveries;
  std::shared_ptr<batch_times> times;  ///< where the stages of batches are stamped; may be null
  std::shared_ptr<arena::flight_recorders> flights;
  keeper_news news;
};

owner_keeper_actor spawn_owner_keeper(caf::actor_system& system, keeper_surroundings around);

}  // namespace penstock::supervisor
