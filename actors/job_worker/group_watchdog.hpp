// Ends the process groups of commands when the worker dies, however it dies: a process of its own waits for the end of the
// worker and then kills the groups in a table that both share. Used by run_command.
//
// The session cannot do it: it kills the worker's process group, and a command leads another one.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace penstock::job_worker {

/// One per process; for its main thread.
class group_watchdog {
 public:
  /// How many groups may be alive at the same time: of the command that runs, and of what earlier ones left running.
  static constexpr std::size_t groups_max = 1024;

  group_watchdog();
  group_watchdog(const group_watchdog&) = delete;
  group_watchdog& operator=(const group_watchdog&) = delete;

  /// Starts the watching process (forks) if there is none any more. Returns 0 or an errno.
  [[nodiscard]] int start();
  /// Readable when the watching process has died: call start(). -1 before the first start().
  [[nodiscard]] int fd() const noexcept { return process_.get(); }
  /// 0 before the first start().
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  using entry = std::atomic<pid_t>;
  /// A free entry, for the pid of a command that leads a group. Null if all groups have living members.
  [[nodiscard]] entry* claim() noexcept;
  /// Frees the entry unless the group still has members: those are killed with the worker. Call it right after the
  /// leader was reaped.
  static void release(entry& group) noexcept;

 private:
  [[nodiscard]] bool is_watched() const noexcept;

  mapping table_;  // of entries, shared with the watching process
  pid_t pid_ = 0;
  unique_fd process_;  // its pidfd
  unique_fd alive_;    // the end of a pipe that closes when the worker dies
};

}  // namespace penstock::job_worker
