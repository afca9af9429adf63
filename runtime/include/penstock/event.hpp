// What happens to a session while it runs, one thing at a time. Heard through session_options::on_event, read
// back with `penstock events`.
#pragma once

#include <penstock/export.hpp>
#include <penstock/report.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace penstock {

/// Batches are not events: thousands a second would push out what people look for. The report counts them.
enum class event_kind : std::uint8_t {
  run_started,         ///< the first demand came
  stream_opened,       ///< a worker has described the dataset: it is known what will be delivered
  device_opened,       ///< text: its name
  device_failed,       ///< text: why
  device_lost,         ///< the process that owned the device is gone; it is started again
  worker_started,      ///< the first process of a place: worker, incarnation, pid
  worker_restarted,    ///< its replacement: the same
  worker_ready,        ///< it takes leases
  worker_died,         ///< `death` says how, and which sample it is charged to
  worker_failed,       ///< a place that died too often is left empty
  sample_failed,       ///< sample, path, epoch, sequence; text: why it could not be loaded
  sample_quarantined,  ///< the same for a sample that kills workers
  batch_recovered,     ///< epoch, sequence: a batch that a dead worker had is loaded after all
  epoch_done,          ///< every batch of the epoch is delivered
  paused,
  resumed,
  scaled,          ///< text: to how many workers
  degraded,        ///< fewer workers than wanted will ever come back
  recovered,       ///< the opposite
  stopping,        ///< somebody wants the end
  run_finished,    ///< every epoch that was asked for is delivered
  run_stopped,     ///< it ended before that because somebody said so
  run_failed,      ///< text: why
  stalled,         ///< nothing has moved for 5 s although a batch is owed; text: who is waited for
  progress_again,  ///< the opposite
};
/// "worker_died": the spelling in JSON.
PENSTOCK_API const char* name_of(event_kind kind) noexcept;

/// One event. What does not belong to its kind is empty.
struct event {
  std::uint64_t number = 0;                    ///< 1, 2, 3, ...: a gap means that events are no longer kept
  std::chrono::system_clock::time_point time;  ///< a death's is when it was noticed
  event_kind kind = event_kind::run_started;
  std::optional<std::uint32_t> worker;
  std::optional<std::uint32_t> incarnation;
  std::optional<std::int32_t> pid;
  std::optional<std::uint64_t> sample;
  std::optional<std::string> path;  ///< of the sample
  std::optional<std::uint64_t> epoch;
  std::optional<std::uint64_t> sequence;  ///< of the batch within its epoch
  std::shared_ptr<const death_report> death;
  std::string text;  ///< the whole in one sentence for people
  std::uint64_t dropped =
      0;  ///< only in callbacks: events before this one that the callback was too slow for
};

/// Called on a thread of its own, one event at a time, in order. It may take its time: nothing waits for it,
/// and what does not fit into the session's journal meanwhile is counted in the next event's `dropped`. What
/// it throws is logged and forgotten. It may call stop(), pause(), resume(), scale(), restart(), drain(),
/// status(), report() and state() of its session, but not take batches, close or destroy it; close() and the
/// destructor wait for a call that is under way, and none comes after them.
using event_callback = std::function<void(const event&)>;

}  // namespace penstock
