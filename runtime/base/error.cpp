#include "runtime/base/result.hpp"

#include <penstock/error.hpp>

#include <string_view>
#include <system_error>

namespace penstock {

const char* name_of(errc code) noexcept {
  switch (code) {
    case errc::config: return "config";
    case errc::usage: return "usage";
    case errc::io: return "io";
    case errc::dataset: return "dataset";
    case errc::sample: return "sample";
    case errc::out_of_memory: return "out_of_memory";
    case errc::system: return "system";
    case errc::worker_program: return "worker_program";
    case errc::workers_exhausted: return "workers_exhausted";
    case errc::protocol: return "protocol";
    case errc::quarantine_full: return "quarantine_full";
    case errc::device_unavailable: return "device_unavailable";
    case errc::device_out_of_memory: return "device_out_of_memory";
    case errc::device_busy: return "device_busy";
    case errc::device_poisoned: return "device_poisoned";
    case errc::device_hardware: return "device_hardware";
    case errc::device_image: return "device_image";
    case errc::state_mismatch: return "state_mismatch";
    case errc::sink: return "sink";
    case errc::stopped: return "stopped";
    case errc::timed_out: return "timed_out";
    case errc::group_failed: return "group_failed";
    case errc::job_failed: return "job_failed";
  }
  return "unknown";
}

error::~error() = default;

failure os_failure(errc code, int os_code, std::string_view what) {
  // generic_category is thread-safe, unlike strerror.
  return {code, fmt::format("{}: {}", what, std::generic_category().message(os_code)), os_code};
}

}  // namespace penstock
