// Events in the life of a session. Delivered to session_options::on_event, and listed by `penstock events`.
#pragma once

#include <penstock/export.hpp>
#include <penstock/report.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Batches are not events: thousands per second would push everything else out of the journal.
/// The report counts batches.
enum class event_kind : std::uint8_t {
  run_started,         ///< the consumer has requested the first batch
  stream_opened,       ///< a worker has described the dataset: the stream's length is known
  device_opened,       ///< text: its name
  device_failed,       ///< text: why
  memory_attached,     ///< the device can read a worker's slots: worker; text: how much, how long it took
  device_lost,         ///< the process that owned the device is gone; a new one is started unless the session is stopping
  worker_started,      ///< the first process in a place: worker, incarnation, pid
  worker_restarted,    ///< a replacement has started: the same fields
  worker_ready,        ///< the worker can take leases
  worker_died,         ///< `death` has the cause, and the sample that it is blamed on; also emitted if it had to be killed during a stop
  worker_failed,       ///< a worker died too often, so its place stays empty
  sample_failed,       ///< sample, path, epoch, sequence; text: why it could not be loaded
  sample_quarantined,  ///< a sample kills workers: the same fields
  batch_recovered,     ///< epoch, sequence: another worker has loaded the batch of a dead one
  epoch_done,          ///< every batch of the epoch has been delivered
  paused,
  resumed,
  scaled,        ///< text: to how many workers
  degraded,      ///< some workers failed for good
  recovered,     ///< the pool is no longer degraded
  stopping,      ///< a stop was requested
  run_finished,  ///< all requested epochs have been delivered; only events of workers and of the device may follow
  /// The session was stopped before all requested epochs were delivered; only events of workers and
  /// of the device may follow.
  run_stopped,
  run_failed,    ///< text: why
  stalled,  ///< a batch is due but there has been no progress for 5 s, or jobs wait for a device buffer that callers
            ///< have held for 10 s; text: what the session waits for
  progress_again,  ///< the stream is no longer stalled
  suspended,       ///< the session's process or its machine was suspended, which is noticed afterwards; text: from when to when
  job_failed,      ///< in a pool: a job was poisoned, timed out or lost with its worker; text: which job, and why
  group_joining,   ///< text: the rank, and where the group meets
  group_joined,    ///< all ranks have arrived, and their settings agree
  group_running,   ///< the ranks' datasets agree, too, so batches may be handed out
  group_stopping,  ///< every rank stops at the same step
  group_over,      ///< text: how it ended
  rank_arrived,    ///< in rank 0's session; text: which one
  rank_lost,       ///< in rank 0's session; text: which one, and why
  restarting,      ///< `worker` will be replaced, or the GPU owner if `worker` is empty; text: when
  draining,        ///< a worker will exit, and its place stays empty
  host_joined,     ///< host; text: its address, and how many workers it has
  host_left,       ///< host: its workers have finished what they held
  host_lost,       ///< host; text: why
  host_refused,    ///< host; text: what differs, with both values
  memory_exceeded,  ///< a worker is over its memory limit, and is replaced after its batch: worker, incarnation, pid, sample, path
  job_raised,      ///< in a pool: a job's function raised `exception`; only the first 100 times
  batch_lost,      ///< in a data loader: the program got an exception instead of a batch: epoch, sequence, `samples`; sample: the
                   ///< one to blame, if any; text: why
};
/// The spelling in JSON: "worker_died".
PENSTOCK_API const char* name_of(event_kind kind) noexcept;

/// An event. Fields that do not apply to its kind are empty.
struct event {
  std::uint64_t number = 0;                    ///< 1, 2, 3, ...: a gap means that events were lost
  std::chrono::system_clock::time_point time;  ///< of a death, the time when it was noticed
  event_kind kind = event_kind::run_started;
  std::optional<std::uint32_t> worker;
  std::optional<std::uint32_t> incarnation;
  std::optional<std::int32_t> pid;
  std::optional<std::uint64_t> sample;
  std::optional<std::string> path;  ///< the sample's
  std::optional<std::uint64_t> epoch;
  std::optional<std::uint64_t> sequence;  ///< the batch's number within its epoch
  std::shared_ptr<const death_report> death;
  std::shared_ptr<const owner_death_report> owner_death{};  ///< set for device_lost
  std::string text;                                         ///< a full description for people
  std::uint64_t dropped =
      0;  ///< only in callbacks: events lost before this one because the callback was too slow
  std::optional<std::string> host{};  ///< the name of a loader host
  std::shared_ptr<const raised_exception> exception{};  ///< set for job_raised, and for a data loader's sample_failed
  std::vector<std::uint64_t> samples{};  ///< of batch_lost: the samples that the program did not get, at most 1024 of those with a number
  std::uint64_t samples_unlisted = 0;    ///< of batch_lost: how many others it did not get
};

/// Called on a separate thread, one event at a time, in order. It may be slow: nothing waits for it. Events
/// that overflow the session's journal in the meantime are counted in the next event's `dropped`. Exceptions
/// from it are logged and ignored. It may call stop(), pause(), resume(), scale(), restart(), drain(),
/// status(), report() and state() of its session, but must not take batches, close the session or destroy it.
/// close() and the destructor wait for a call in progress; there are no calls afterwards.
using event_callback = std::function<void(const event&)>;

}  // namespace penstock
