// The processor time used by a connection of a loader host: by its thread and its workers. Used by host_connection, on
// that thread.
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

  nanoseconds before_{0};  // time of workers that have ended, minus the thread's time before start()
};

}  // namespace penstock::hosts
