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

}  // namespace penstock
