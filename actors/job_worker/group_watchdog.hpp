// Kills the process groups of commands when the worker dies, however it dies: a separate process waits for
// the worker's death and then kills the groups in a table that both share. Used by run_command.
//
// The session cannot do this: it kills the worker's process group, but a command leads its own.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace penstock::job_worker {

/// One per process; used by its main thread.
class group_watchdog {
 public:
  /// How many groups may be alive at the same time: the running command's, and those that earlier commands
  /// left.
  static constexpr std::size_t groups_max = 1024;

  group_watchdog();
  group_watchdog(const group_watchdog&) = delete;
  group_watchdog& operator=(const group_watchdog&) = delete;

  /// Starts (forks) the watching process unless one is running. Returns 0 or an errno.
  [[nodiscard]] int start();
  /// Readable when the watching process has died: call start(). -1 before the first start().
  [[nodiscard]] int fd() const noexcept { return process_.get(); }
  /// The pid of the watching process; 0 before the first start().
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  using entry = std::atomic<pid_t>;
  /// A free entry, for the pid of a command that leads a group. Null if all groups have living members.
  [[nodiscard]] entry* claim() noexcept;
  /// Frees the entry unless the group still has members, which are then killed with the worker. Call right
  /// after reaping the leader.
  static void release(entry& group) noexcept;

 private:
  [[nodiscard]] bool is_watched() const noexcept;

  mapping table_;  // the entries, shared with the watching process
  pid_t pid_ = 0;
  unique_fd process_;  // pidfd of the watching process
  unique_fd alive_;    // pipe end that closes when the worker dies
};

}  // namespace penstock::job_worker
