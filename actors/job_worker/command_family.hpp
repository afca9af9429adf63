// The processes of a command: its own, and all that it has started, including those that have left its
// process group or lost their parent. To find them, the worker adopts orphans (PR_SET_CHILD_SUBREAPER) and
// waits for any child, so only a program whose children are all commands may use this class.
#pragma once

#include "actors/job_worker/group_watchdog.hpp"

#include <sys/types.h>

#include <chrono>
#include <set>
#include <vector>

namespace penstock::job_worker {

class command_family {
 public:
  /// Construct before the command starts. Excludes processes left by earlier commands, and the process of
  /// `watchdog`, which must outlive this object.
  explicit command_family(const group_watchdog& watchdog);

  /// The members' pids; parents come before their children.
  [[nodiscard]] std::vector<pid_t> members() const;
  /// Kills all members with SIGKILL and waits until they have ended, for at most 1 s. Stops them first, so that
  /// none can start another process, or die before its children are known.
  void kill() const;
  /// Reaps orphans that have ended, but not the command itself. Cheap enough to call at any time.
  void reap_orphans(pid_t command);

 private:
  const group_watchdog& watchdog_;
  std::set<pid_t> earlier_;
  std::chrono::steady_clock::time_point next_reaping_;
};

}  // namespace penstock::job_worker
