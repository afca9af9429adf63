// What a hosted worker's process uses: memory, processor time, and whether a debugger holds it. Used by hosted_worker.
#pragma once

#include "runtime/base/clock.hpp"

#include <sys/types.h>

#include <cstdint>

namespace penstock::hosts {

class process_meter {
 public:
  void started(pid_t pid) noexcept { pid_ = pid; }
  /// The process's pid; -1 until it has started.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Measures memory and debugger, at most four times a second.
  void look(steady_time now);
  [[nodiscard]] std::uint64_t private_bytes() const noexcept { return private_bytes_; }
  [[nodiscard]] std::uint64_t resident_bytes() const noexcept { return resident_bytes_; }
  [[nodiscard]] bool traced() const noexcept { return traced_; }
  /// Processor time of the process so far.
  [[nodiscard]] nanoseconds cpu();

 private:
  pid_t pid_ = -1;
  steady_time measured_at_{};
  std::uint64_t private_bytes_ = 0;
  std::uint64_t resident_bytes_ = 0;
  bool traced_ = false;
  nanoseconds cpu_{0};  // the time as last measured
};

}  // namespace penstock::hosts
