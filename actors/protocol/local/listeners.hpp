// What actors report to their creator: one interface per actor that reports more than its messages to other
// actors. Implemented by the session (actors/session/session_listener.hpp), the GPU owner's process
// (owner_body.cpp) and tests.
//
// Called on the actor's current thread, one call per actor at a time. Must not block; the implementation
// outlives the actor.
#pragma once

#include "actors/protocol/local/gpu_owner_messages.hpp"
#include "actors/protocol/local/job_messages.hpp"
#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/transfer_plan.hpp"
#include "runtime/group/group_messages.hpp"

#include <penstock/event.hpp>
#include <penstock/report.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::gpu_owner {

/// Reported by the GPU owner or its keeper, in a group with a communicator.
class owner_communicator_listener {
 public:
  virtual void communicator_changed(const group::communicator_state& state) { static_cast<void>(state); }
  /// The answer to communicate::act::draw_id.
  virtual void communicator_drawn(std::uint64_t number, const std::string& id) {
    static_cast<void>(number);
    static_cast<void>(id);
  }
  /// Reports the steps whose snapshots are not agreed yet.
  virtual void snapshots_changed(const std::vector<std::uint64_t>& steps) { static_cast<void>(steps); }
  /// The communicator cannot be aborted: the process must end.
  virtual void communicator_stuck(const std::string& why) { static_cast<void>(why); }

 protected:
  ~owner_communicator_listener() = default;
};

/// The slots of one worker, now readable by the device.
struct attached_partition {
  std::uint32_t partition = 0;  ///< the worker's number
  std::uint64_t bytes = 0;
  bool pinned = false;  ///< the device reads the slots directly
  nanoseconds took{};
};

/// The owner's reports about memory; for an owner in another process, its keeper makes them.
class memory_listener {
 public:
  virtual void attached(const attached_partition& what) { static_cast<void>(what); }

 protected:
  ~memory_listener() = default;
};

class owner_listener : public virtual owner_communicator_listener, public virtual memory_listener {
 public:
  virtual void opened(const device::identity& what) = 0;
  /// Called once. The device is not used afterwards.
  virtual void failed(const failure& why) = 0;
  /// Called when these uploads are copied: their slots are free.
  virtual void slots_released(std::vector<std::uint64_t> uploads) = 0;
  /// Called after each burst: finished uploads and their bytes, and whether the device reads the arena
  /// directly.
  virtual void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) = 0;

 protected:
  ~owner_listener() = default;
};

}  // namespace penstock::gpu_owner

namespace penstock::supervisor {

class supervisor_listener {
 public:
  /// Reports the state of all workers, whenever something may have changed.
  virtual void workers_changed(const std::vector<worker_status>& workers, bool degraded,
                               std::uint32_t started, std::uint32_t restarts) = 0;
  virtual void worker_died(const death_report& death) = 0;
  /// Called when the run must fail.
  virtual void gave_up(const failure& why) = 0;
  /// Called when all workers are gone, after close_pool.
  virtual void pool_closed() = 0;

 protected:
  ~supervisor_listener() = default;
};

/// What is known about the owner's process.
struct owner_facts {
  child_state state = child_state::idle;
  std::optional<pid_t> pid;
  std::uint32_t restarts = 0;
  bool irreplaceable = false;  ///< its death fails the run: its sink keeps state but gives no snapshots

  bool operator==(const owner_facts&) const = default;
};

class keeper_listener : public virtual gpu_owner::owner_communicator_listener, public virtual gpu_owner::memory_listener {
 public:
  /// Called when the first process has opened the device.
  virtual void opened(const device::identity& what) = 0;
  /// Called when a replacement has opened the device.
  virtual void reopened(pid_t owner) = 0;
  virtual void owner_changed(const owner_facts& facts) = 0;
  /// Called as soon as the death is known.
  virtual void owner_died(const owner_death_report& death) = 0;
  /// Called when uploads have resumed after the death of this incarnation.
  virtual void owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) = 0;
  virtual void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) = 0;
  /// Reports the total time that the sink has waited for batches, in all incarnations, including a wait in progress.
  /// `waits_at`: a long wait was still in progress at that time.
  virtual void owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) = 0;
  /// NVML's list of processes on the GPU.
  virtual void gpu_processes_seen(std::vector<gpu_process> processes) = 0;
  virtual void gave_up(const failure& why) = 0;
  /// Called when the process is gone, after close_device.
  virtual void owner_closed() = 0;

 protected:
  ~keeper_listener() = default;
};

/// In a pool of jobs: receives reports on uploads in place of a stream's scheduler.
class job_upload_listener {
 public:
  virtual void jobs_answered(std::vector<jobs::device_answer> answers) = 0;
  virtual void uploads_lost(jobs::device_lost loss) = 0;

 protected:
  ~job_upload_listener() = default;
};

/// Receives workers' reports on the io thread. There are so many that they bypass the supervisor.
class report_listener {
 public:
  /// Handles a message. False if this listener does not handle it: the message then goes to the supervisor.
  virtual bool reported(worker_ref who, protocol::from_worker& message) = 0;

 protected:
  ~report_listener() = default;
};

/// Receives the output of child processes, by source ("worker/3", "gpu"); called on the io thread.
class output_listener {
 public:
  virtual void started(const std::string& source, std::uint32_t incarnation) = 0;
  virtual void wrote(const std::string& source, std::uint32_t incarnation, std::string_view line) = 0;
  virtual void ended(const std::string& source) = 0;

 protected:
  ~output_listener() = default;
};

}  // namespace penstock::supervisor

namespace penstock::scheduler {

class scheduler_listener {
 public:
  virtual void sample_failed(const lost_sample& lost) = 0;
  virtual void sample_quarantined(const lost_sample& lost) = 0;
  virtual void batch_delivered(const schedule::delivery& batch, std::uint64_t epoch) = 0;
  /// Called when another worker has loaded a batch that a dead worker held.
  virtual void batch_recovered(std::uint64_t epoch, std::uint64_t sequence) = 0;
  virtual void epoch_done(const schedule::epoch_account& done) = 0;
  /// The counts of late or wrong messages, of samples in quarantine, and of hedges.
  virtual void counted(std::uint64_t stale_dropped, std::uint64_t quarantined, const hedge_counts& hedges) = 0;
  virtual void gave_up(const failure& why) = 0;
  virtual void stream_finished(std::uint64_t seek_number) = 0;
  /// Called when the scheduler has answered tell_accounts.
  virtual void answered() = 0;

 protected:
  ~scheduler_listener() = default;
};

}  // namespace penstock::scheduler

namespace penstock::group {

/// Reported by the member actor, and by rank 0's coordinator.
class group_listener {
 public:
  /// Called whenever a part of the status may have changed.
  virtual void group_changed(const group_status& now) = 0;
  /// Reports an event for the session's journal.
  virtual void group_event(event_kind what, std::string text) = 0;
  /// Called once, when all ranks are present and their settings agree: memory may be allocated and workers started.
  virtual void joined() = 0;
  /// Called when the gate's answers may have changed.
  virtual void gate_moved() = 0;
  /// Called once. `failed` comes with a cause. After `stopped`, batches already handed out are still delivered.
  virtual void group_over(group_outcome how, const std::optional<group_cause>& cause) = 0;
  /// Passes an order of the group to this rank's GPU owner.
  virtual void communicator_ordered(const gpu_owner::communicate& order) { static_cast<void>(order); }
  /// From the coordinator to this rank's member: why the coordinator cannot listen at the group's address;
  /// empty: it listens.
  virtual void cannot_listen(const std::string& why) { static_cast<void>(why); }
  /// From the coordinator to this rank's member: the coordinator has refused this peer.
  virtual void peer_refused(const std::string& who) { static_cast<void>(who); }
  /// Called when the actor has ended: no rank needs this session any more.
  virtual void member_gone() = 0;
  virtual void coordinator_gone() = 0;

 protected:
  ~group_listener() = default;
};

}  // namespace penstock::group

namespace penstock::session {

/// Reported by the session actor.
class stream_listener {
 public:
  /// How the stream divides into batches. `samples`: of the dataset. `slots`: batches that a worker may hold.
  virtual void planned(std::uint64_t samples, std::shared_ptr<const plan> order,
                       std::shared_ptr<const device::transfer_plan> transfer, schedule::stream_range range,
                       const std::string& fingerprint, std::uint32_t slots) = 0;
  /// Quarantined samples from earlier runs.
  virtual void quarantine_known(const std::vector<quarantine_report>& known) = 0;
  virtual void gave_up(const failure& why) = 0;

 protected:
  ~stream_listener() = default;
};

}  // namespace penstock::session
