// The processor time that a connection of a loader host costs its machine: that of its thread and of its workers. Used by
// host_connection, on that thread.
#pragma once

#include "actors/remote/hosted_worker.hpp"
#include "runtime/base/clock.hpp"

#include <ctime>

namespace penstock::hosts {

class cpu_account {
 public:
  /// Starts counting.
  void start() { before_ = -of_this_thread(); }
  void ended(hosted_worker& worker) { before_ += worker.cpu(); }
  /// `running`: null if no worker runs.
  [[nodiscard]] nanoseconds used(hosted_worker* running) const {
    return before_ + of_this_thread() + (running == nullptr ? nanoseconds(0) : running->cpu());
  }

 private:
  static nanoseconds of_this_thread() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
  }

  nanoseconds before_{0};  // of workers that have ended, less that of the thread before the start
};

}  // namespace penstock::hosts
