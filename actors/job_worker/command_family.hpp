// The processes of a command: its own, and all that it has started, also those that have left its process group or lost
// their parent. For this the worker adopts orphans (PR_SET_CHILD_SUBREAPER) and waits for any child, so only a program
// whose children are all commands may use it.
#pragma once

#include "actors/job_worker/group_watchdog.hpp"

#include <sys/types.h>

#include <chrono>
#include <set>
#include <vector>

namespace penstock::job_worker {

class command_family {
 public:
  /// Construct it before the command starts. What earlier commands have left behind does not belong to it, nor does the
  /// process of `watchdog`, which outlives it.
  explicit command_family(const group_watchdog& watchdog);

  /// Parents come before their children.
  [[nodiscard]] std::vector<pid_t> members() const;
  /// Kills them all with SIGKILL. Stops them first, so that none can start another process, or die before its
  /// children are known.
  void kill() const;
  /// Reaps orphans that have ended, not the command itself. Cheap enough to be called at any time.
  void reap_orphans(pid_t command);

 private:
  const group_watchdog& watchdog_;
  std::set<pid_t> earlier_;
  std::chrono::steady_clock::time_point next_reaping_;
};

}  // namespace penstock::job_worker
