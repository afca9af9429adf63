// Periodically asks NVML which processes use a GPU, for `status`. Runs in the process that holds the device:
// the session (embedded) or penstock-gpu.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/device/nvml.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::device {

/// Has its own thread, because the driver may block; no caller waits for its answers. Without NVML the thread
/// exits at once.
class gpu_process_watch {
 public:
  using teller = std::function<void(const std::vector<gpu_process>&)>;
  struct rhythm {
    /// Delay before the first query, because opening NVML would
    /// slow down the device's start, and short runs do not need it.
    nanoseconds first = std::chrono::seconds(1);
    nanoseconds then = std::chrono::seconds(10);
  };

  gpu_process_watch(std::string uuid, teller tell)
      : gpu_process_watch(std::move(uuid), std::move(tell), rhythm(), nvml_library_name) {}
  gpu_process_watch(std::string uuid, teller tell, rhythm when, std::string library);
  /// Stops the thread. Afterwards, `tell` is not called again. Waits at most 1 s; a thread that hangs in the driver
  /// is abandoned.
  ~gpu_process_watch();
  gpu_process_watch(const gpu_process_watch&) = delete;
  gpu_process_watch& operator=(const gpu_process_watch&) = delete;

 private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

}  // namespace penstock::device
