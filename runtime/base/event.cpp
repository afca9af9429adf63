#include <penstock/event.hpp>

namespace penstock {

const char* name_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::run_started: return "run_started";
    case event_kind::stream_opened: return "stream_opened";
    case event_kind::device_opened: return "device_opened";
    case event_kind::memory_attached: return "memory_attached";
    case event_kind::device_failed: return "device_failed";
    case event_kind::device_lost: return "device_lost";
    case event_kind::worker_started: return "worker_started";
    case event_kind::worker_restarted: return "worker_restarted";
    case event_kind::worker_ready: return "worker_ready";
    case event_kind::worker_died: return "worker_died";
    case event_kind::worker_failed: return "worker_failed";
    case event_kind::sample_failed: return "sample_failed";
    case event_kind::sample_quarantined: return "sample_quarantined";
    case event_kind::batch_recovered: return "batch_recovered";
    case event_kind::epoch_done: return "epoch_done";
    case event_kind::paused: return "paused";
    case event_kind::resumed: return "resumed";
    case event_kind::scaled: return "scaled";
    case event_kind::degraded: return "degraded";
    case event_kind::recovered: return "recovered";
    case event_kind::stopping: return "stopping";
    case event_kind::run_finished: return "run_finished";
    case event_kind::run_stopped: return "run_stopped";
    case event_kind::stalled: return "stalled";
    case event_kind::progress_again: return "progress_again";
    case event_kind::suspended: return "suspended";
    case event_kind::group_joining: return "group_joining";
    case event_kind::group_joined: return "group_joined";
    case event_kind::group_running: return "group_running";
    case event_kind::group_stopping: return "group_stopping";
    case event_kind::group_over: return "group_over";
    case event_kind::rank_arrived: return "rank_arrived";
    case event_kind::rank_lost: return "rank_lost";
    case event_kind::restarting: return "restarting";
    case event_kind::draining: return "draining";
    case event_kind::host_joined: return "host_joined";
    case event_kind::host_left: return "host_left";
    case event_kind::host_lost: return "host_lost";
    case event_kind::host_refused: return "host_refused";
    case event_kind::memory_exceeded: return "memory_exceeded";
    case event_kind::job_failed: return "job_failed";
    case event_kind::job_raised: return "job_raised";
    case event_kind::batch_lost: return "batch_lost";
    case event_kind::run_failed: break;
  }
  return "run_failed";
}

}  // namespace penstock
