// How long the calling thread has been able to run but had no core. Used by workers, to time samples.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

namespace penstock::process {

/// Belongs to the thread that calls it first. A reading costs about a microsecond.
class core_wait_meter {
 public:
  /// Running total; 0 if the kernel does not count this time.
  [[nodiscard]] nanoseconds read() noexcept;

 private:
  unique_fd file_;
};

}  // namespace penstock::process
