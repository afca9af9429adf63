// What actors report to their creator: one interface for each actor that reports more than its messages to
// other actors. Implemented by the session (actors/session/news_of_actors.hpp), the GPU owner's process
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

/// Of the GPU owner or its keeper, in a group with a communicator.
class communicator_news {
 public:
  virtual void communicator_changed(const group::communicator_state& state) { static_cast<void>(state); }
  /// The answer to communicate::act::draw_id.
  virtual void communicator_drawn(std::uint64_t number, const std::string& id) {
    static_cast<void>(number);
    static_cast<void>(id);
  }
  /// The steps of which it has a snapshot that is not agreed yet.
  virtual void snapshots_changed(const std::vector<std::uint64_t>& steps) { static_cast<void>(steps); }
  /// Its communicator cannot be aborted: the process has to end.
  virtual void communicator_stuck(const std::string& why) { static_cast<void>(why); }

 protected:
  ~communicator_news() = default;
};

/// The slots of one worker, which the device can read now.
struct attached_partition {
  std::uint32_t partition = 0;  ///< the worker's number
  std::uint64_t bytes = 0;
  bool pinned = false;  ///< the device reads them directly
  nanoseconds took{};
};

/// What the owner tells of memory; of one in another process its keeper.
class memory_news {
 public:
  virtual void attached(const attached_partition& what) { static_cast<void>(what); }

 protected:
  ~memory_news() = default;
};

class owner_news : public virtual communicator_news, public virtual memory_news {
 public:
  virtual void opened(const device::identity& what) = 0;
  /// Once. The device is not used again.
  virtual void failed(const failure& why) = 0;
  /// These uploads are copied: their slots are free.
  virtual void slots_released(std::vector<std::uint64_t> uploads) = 0;
  /// After each burst: finished uploads and their bytes, and whether the device reads the arena directly.
  virtual void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) = 0;

 protected:
  ~owner_news() = default;
};

}  // namespace penstock::gpu_owner

namespace penstock::supervisor {

class supervisor_news {
 public:
  /// The state of all workers, whenever something may have changed.
  virtual void workers_changed(const std::vector<worker_status>& workers, bool degraded,
                               std::uint32_t started, std::uint32_t restarts) = 0;
  virtual void worker_died(const death_report& death) = 0;
  /// The run must fail.
  virtual void gave_up(const failure& why) = 0;
  /// All workers are gone, after close_pool.
  virtual void pool_closed() = 0;

 protected:
  ~supervisor_news() = default;
};

/// What is known about the owner's process.
struct owner_facts {
  std::string state;  ///< starting, ready, backoff, failed, stopped
  std::optional<pid_t> pid;
  std::uint32_t restarts = 0;
  bool irreplaceable = false;  ///< its death fails the run: its sink keeps state and gives no snapshots

  bool operator==(const owner_facts&) const = default;
};

class keeper_news : public virtual gpu_owner::communicator_news, public virtual gpu_owner::memory_news {
 public:
  /// The first process has opened the device.
  virtual void opened(const device::identity& what) = 0;
  /// A replacement has opened it.
  virtual void reopened(pid_t owner) = 0;
  virtual void owner_changed(const owner_facts& facts) = 0;
  /// As soon as it is known.
  virtual void owner_died(const owner_death_report& death) = 0;
  /// Uploads have resumed after the death of this incarnation.
  virtual void owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) = 0;
  virtual void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) = 0;
  /// The total time that its sink has waited for batches, in all incarnations; a wait in progress counts. `waits_at`: it has
  /// waited for long, and was still waiting at that time.
  virtual void owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) = 0;
  /// NVML's list of processes on the GPU.
  virtual void gpu_processes_seen(std::vector<gpu_process> processes) = 0;
  virtual void gave_up(const failure& why) = 0;
  /// The process is gone, after close_device.
  virtual void owner_closed() = 0;

 protected:
  ~keeper_news() = default;
};

/// In a pool of jobs: who hears of uploads in place of a stream's scheduler.
class job_upload_news {
 public:
  virtual void jobs_answered(std::vector<jobs::device_answer> answers) = 0;
  virtual void uploads_lost(jobs::device_lost loss) = 0;

 protected:
  ~job_upload_news() = default;
};

/// Workers' reports are many: they do not pass the supervisor. On the io thread.
class report_listener {
 public:
  /// False: not a report for this listener; the message then goes to the supervisor.
  virtual bool reported(worker_ref who, protocol::from_worker& message) = 0;

 protected:
  ~report_listener() = default;
};

/// Where the output of child processes goes, by source ("worker/3", "gpu"); called on the io thread.
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

class scheduler_news {
 public:
  virtual void sample_failed(const lost_sample& lost) = 0;
  virtual void sample_quarantined(const lost_sample& lost) = 0;
  virtual void batch_delivered(const schedule::delivery& batch, std::uint64_t epoch) = 0;
  /// A batch that a dead worker held has been loaded by another one.
  virtual void batch_recovered(std::uint64_t epoch, std::uint64_t sequence) = 0;
  virtual void epoch_done(const schedule::epoch_account& done) = 0;
  /// The counts of late or wrong messages, and of samples in quarantine.
  virtual void counted(std::uint64_t stale_dropped, std::uint64_t quarantined) = 0;
  virtual void gave_up(const failure& why) = 0;
  virtual void stream_finished(std::uint64_t seek_number) = 0;
  /// It has answered tell_accounts.
  virtual void answered() = 0;

 protected:
  ~scheduler_news() = default;
};

}  // namespace penstock::scheduler

namespace penstock::group {

/// Of the member actor, and of rank 0's coordinator.
class group_news {
 public:
  /// Whenever something of it may have changed.
  virtual void group_changed(const group_status& now) = 0;
  /// For the journal.
  virtual void group_event(event_kind what, std::string text) = 0;
  /// All ranks are there, and their settings agree: memory may be allocated, workers started. Once.
  virtual void joined() = 0;
  /// What the gate answers may have changed.
  virtual void gate_moved() = 0;
  /// Once. A failure has its cause; after `stopped` the batches that were handed out are still delivered.
  virtual void group_over(group_outcome how, const std::optional<group_cause>& cause) = 0;
  /// For the GPU owner of this rank.
  virtual void communicator_ordered(const gpu_owner::communicate& order) { static_cast<void>(order); }
  /// Of the coordinator, for this rank's member: it cannot take the group's address; empty: it has it.
  virtual void cannot_listen(const std::string& why) { static_cast<void>(why); }
  /// The actor has ended: nobody needs this session any more.
  virtual void member_gone() = 0;
  virtual void coordinator_gone() = 0;

 protected:
  ~group_news() = default;
};

}  // namespace penstock::group

namespace penstock::session {

/// Of the session actor.
class stream_news {
 public:
  /// How the stream divides into batches.
  virtual void planned(std::shared_ptr<const plan> order,
                       std::shared_ptr<const device::transfer_plan> transfer, schedule::stream_range range,
                       const std::string& fingerprint) = 0;
  /// From earlier runs.
  virtual void quarantine_known(const std::vector<quarantine_report>& known) = 0;
  virtual void gave_up(const failure& why) = 0;

 protected:
  ~stream_news() = default;
};

}  // namespace penstock::session
