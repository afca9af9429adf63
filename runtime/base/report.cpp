#include <penstock/report.hpp>

namespace penstock {

const char* name_of(death_cause cause) noexcept {
  switch (cause) {
    case death_cause::signal: return "signal";
    case death_cause::exit: return "exit";
    case death_cause::hang: return "hang";
    case death_cause::heartbeat: return "heartbeat";
    case death_cause::memory: return "memory";
    case death_cause::oom: return "oom";
    case death_cause::cancelled: return "cancelled";
    case death_cause::host: return "host";
    case death_cause::protocol: return "protocol";
    case death_cause::stopped: return "stopped";
    case death_cause::unknown: break;
  }
  return "unknown";
}

const char* name_of(run_outcome outcome) noexcept {
  switch (outcome) {
    case run_outcome::running: return "running";
    case run_outcome::finished: return "finished";
    case run_outcome::stopped: return "stopped";
    case run_outcome::failed: break;
  }
  return "failed";
}

const char* name_of(session_state state) noexcept {
  switch (state) {
    case session_state::ok: return "ok";
    case session_state::degraded: return "degraded";
    case session_state::paused: return "paused";
    case session_state::stopping: return "stopping";
    case session_state::failed: break;
  }
  return "failed";
}

const char* name_of(child_state state) noexcept {
  switch (state) {
    case child_state::idle: return "idle";
    case child_state::stopped: return "stopped";
    case child_state::starting: return "starting";
    case child_state::ready: return "ready";
    case child_state::draining: return "draining";
    case child_state::backoff: return "backoff";
    case child_state::stopping: return "stopping";
    case child_state::unkillable: return "unkillable";
    case child_state::failed: break;
  }
  return "failed";
}

const char* name_of(vacancy why) noexcept {
  switch (why) {
    case vacancy::drained: return "drained";
    case vacancy::scaled_down: return "scaled down";
    case vacancy::not_restarted: return "not restarted";
    case vacancy::not_needed: return "not needed";
    case vacancy::host_gone: return "its host is gone";
    case vacancy::none: break;
  }
  return "";
}

const char* name_of(stall_kind kind) noexcept {
  switch (kind) {
    case stall_kind::sample: return "sample";
    case stall_kind::worker: return "worker";
    case stall_kind::probation: return "trial";
    case stall_kind::gpu_owner: return "gpu";
    case stall_kind::consumer: return "consumer";
    case stall_kind::operator_: return "operator";
    case stall_kind::group: return "group";
    case stall_kind::nobody: break;
  }
  return "nobody";
}

const char* name_of(work_phase phase) noexcept {
  switch (phase) {
    case work_phase::idle: return "idle";
    case work_phase::setup: return "setup";
    case work_phase::loading: return "loading";
    case work_phase::checking: return "checking";
    case work_phase::collating: return "collating";
    case work_phase::opening: return "opening";
    case work_phase::describing: return "describing";
  }
  return "unknown";
}

}  // namespace penstock
