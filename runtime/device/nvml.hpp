// NVML, the driver's management library, opened at run time. It creates no CUDA context, but it keeps the GPU's device
// files open, so only a process that holds the GPU anyway, or a short-lived one, may use it. Used for the GPU's
// processes in `status` (gpu_process_watch.hpp), for messages about a GPU that is in use, and by penstock-probe.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/device/driver_library.hpp"

#include <penstock/report.hpp>

#include <optional>
#include <string>
#include <vector>

namespace penstock::device {

inline constexpr char nvml_library_name[] = "libnvidia-ml.so.1";

/// Every call can block as long as the driver does. Not thread-safe.
class nvml {
 public:
  using gpu = void*;

  explicit nvml(driver_library library) : library_(std::move(library)) {}
  ~nvml();
  nvml(const nvml&) = delete;
  nvml& operator=(const nvml&) = delete;

  /// Call first. Refuses with errc::device_unavailable: no library or a missing function (os_code 0), or
  /// NVML's error (in os_code).
  result<void> start();
  [[nodiscard]] unsigned count() const;
  [[nodiscard]] std::optional<gpu> by_index(unsigned index) const;
  /// "GPU-..."
  [[nodiscard]] std::optional<gpu> by_uuid(const std::string& uuid) const;
  /// Processes with a context on that GPU. In a container the pids may be those
  /// of another pid namespace, so they are only displayed, never acted on.
  [[nodiscard]] std::optional<std::vector<gpu_process>> processes_on(gpu which) const;

  /// Calls a function of NVML. Returns false if it is missing or fails.
  template <class... Arguments>
  bool ask(const char* name, Arguments... arguments) const {
    int (*function)(Arguments...) = nullptr;
    return library_.find(name, function) && function(arguments...) == 0;
  }

 private:
  driver_library library_;
  bool started_ = false;
};

/// A single query, including the start of NVML: takes about 100 ms, or longer if the driver hangs. Empty if NVML
/// cannot answer.
std::optional<std::vector<gpu_process>> processes_on_gpu(const std::string& uuid);

/// "pid 4127 (python3, 512 MiB)". The name is that of the process with this pid in our pid namespace, if there is one.
std::string in_words(const std::vector<gpu_process>& processes);

}  // namespace penstock::device
