// Times the samples that a worker loads, without its waits for a core (rule W32). Used by loader workers (actors/loader), and by workers
// of a Python data loader (actors/job_worker). Not thread-safe.
#pragma once

#include "runtime/base/slow_samples.hpp"
#include "runtime/process/core_wait.hpp"

#include <string>

namespace penstock::child {

class sample_meter {
 public:
  /// Call before each sample.
  void begins(steady_time now);
  /// Call when the sample that began last has ended.
  void ended(std::uint64_t index, const std::string& name, steady_time now);
  /// See sample_times::take().
  [[nodiscard]] sample_times::of_batch take() { return times_.take(); }

 private:
  sample_times times_;
  process::core_wait_meter core_wait_;
  nanoseconds core_waited_{0};  ///< how long the thread had waited for a core at the last reading
  steady_time core_read_{};     ///< when the last sample with a reading began
  steady_time began_{};
};

}  // namespace penstock::child
