// Ends a child and its process group: sends signals that reach no other process, and reaps. Used by
// child_process.hpp for a session's children, and by tools that run a program to completion.
//
// A process group has the number of the child that leads it. The kernel does not reuse the
// number until the child is reaped and the group is empty. That guarantee fails if the embedding
// program ignores SIGCHLD, so that the kernel reaps children, or reaps them itself (waitpid(-1)). So before
// each signal we check that the child is still ours; if it is not, we signal, through pidfds, only processes
// that provably belonged to the group. One gap remains: in such a program the child may end between check and
// signal, and a new group would have to reuse its number within these few microseconds.
#pragma once

#include "runtime/base/exit_report.hpp"
#include "runtime/process/spawn.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace penstock::process {

/// Signals the whole group of a child and no other process, even if other code has reaped the child (see
/// above). Does not block.
void signal_group(const child& to, int signal) noexcept;

struct ended_child {
  exit_report report;
  /// pidfds of the group's processes that have not ended yet. They have been sent SIGKILL, but may still use
  /// resources that they share with us: shared memory, devices, files. A pidfd becomes readable when its
  /// process and all its threads have released all of that.
  std::vector<unique_fd> left_over;
};

/// How long to wait between the end of a child and its reaping. When the pidfd becomes readable, the child's
/// threads are still leaving /proc, and if a program has listed them there (`ps -L`, `htop`), Linux before
/// 7.1 waits for them in a busy loop (shrink_dcache_parent). If that loop occupies the only core that the
/// threads may use, they get no time for seconds: with sched_autogroup_enabled, an exiting thread changes its
/// scheduling group and may fall far behind all others. So we give the threads time before we reap: 20 ms if
/// the child or we may use only one core, none if both may use several.
[[nodiscard]] std::chrono::milliseconds time_to_leave(const child& dead) noexcept;

/// For a child whose pidfd has been readable for time_to_leave(): kills the rest of its group while the child
/// is still a zombie, reaps the child, and returns the processes that have not ended yet. Does not block, and
/// waits for no other child. Does not find processes that left the group with setsid or setpgid.
[[nodiscard]] ended_child reap_ended(const child& dead);

/// Waits until all processes of these pidfds have ended. Returns false if some have not ended within `limit`.
bool wait_until_gone(const std::vector<unique_fd>& pidfds, std::chrono::milliseconds limit);

/// Waits for a child to end, reaps it as reap_ended() does, and waits for the rest of its group. Empty if the
/// child is still alive at the deadline: a process in an uninterruptible system call survives SIGKILL. The
/// wait for the rest of the group ends at the deadline too.
std::optional<exit_report> reap(const child& dead, std::chrono::milliseconds deadline);

}  // namespace penstock::process
