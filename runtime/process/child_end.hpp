// How a child and its process group come to their end: signals that reach nobody else, and reaping. Used by
// child_process.hpp for a session's children, and by tools that run a program to its end.
//
// A process group has the number of the child that leads it. The kernel gives the number to nobody else while
// the child is not reaped (a zombie counts) or a member of the group is left. When the embedding program has
// the kernel reap children by themselves (SIGCHLD ignored) or reaps them itself (waitpid(-1)), that is no
// longer certain, so before each signal we ask whether the child is still ours; if it is not, only processes
// are signalled that are provably left over from the group, through pidfds. What remains: in such a program
// the child may end between the question and the signal, and its number would have to be given to a new group
// in these few microseconds.
#pragma once

#include "runtime/base/exit_report.hpp"
#include "runtime/process/spawn.hpp"

#include <chrono>
#include <optional>
#include <vector>

namespace penstock::process {

/// Signals the whole group of a child. Does not block. Nobody else is hit, whoever reaped the child (see
/// above).
void signal_group(const child& to, int signal) noexcept;

struct ended_child {
  exit_report report;
  /// pidfds of the processes of its group that had not ended yet. They were sent SIGKILL and still may use
  /// what they share with us: shared memory, devices, files. Readable when the process and all its threads
  /// have given all of that up.
  std::vector<unique_fd> left_over;
};

/// For a child whose pidfd is readable: kills what is left of its group while the child is still a zombie,
/// reaps it, and tells who has not gone yet. Does not block and waits for no other child. Processes that left
/// the group with setsid or setpgid are not found.
[[nodiscard]] ended_child reap_ended(const child& dead);

/// Waits for the end of a child, reaps it as reap_ended() does, and waits for the rest of its group. Nothing
/// if the child is still alive when the time is over: a process in an uninterruptible system call survives
/// SIGKILL. A rest that has not gone by then is not waited for.
std::optional<exit_report> reap(const child& dead, std::chrono::milliseconds deadline);

}  // namespace penstock::process
