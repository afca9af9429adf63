// Starts child processes so that they cannot outlive the session. A session does so on a separate thread
// (spawner.hpp); child_end.hpp ends them.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::process {

/// A descriptor of ours and the number under which the child finds it.
struct inherited_fd {
  int ours = -1;
  int theirs = -1;
};

struct spawn_request {
  std::string program;                   ///< a path; no search
  std::vector<std::string> arguments;    ///< argv[1..]
  std::vector<std::string> environment;  ///< the whole environment, as "NAME=value"
  std::vector<inherited_fd> fds;         ///< everything else is closed; 0 is /dev/null unless named here
  std::vector<int> cores{};              ///< the cores that the child may run on; empty: those of the calling thread
  std::string name{};                    ///< argv[0]; empty: the program
  /// Where the kernel writes the child's pid before the child runs, so that the pid is known even if this
  /// process is killed meanwhile. After a refusal it holds the pid of a child that is gone.
  std::atomic<pid_t>* announce = nullptr;
};

/// A running (or dead, not yet reaped) child. Move-only; does nothing when destroyed.
struct child {
  pid_t pid = -1;
  unique_fd pidfd;
};

/// Lets another thread cancel a start that does not return. Use one object for each start.
class start_control {
 public:
  /// Refuses the start as soon as possible: a child that waits in the kernel for the program's file gets
  /// SIGKILL. No effect once exec has succeeded. Does not wait; from any thread.
  void give_up();
  [[nodiscard]] bool given_up() const noexcept { return given_up_; }

 private:
  friend result<child> spawn(const spawn_request& request, start_control* control);

  std::mutex mutex_;  // guards the use and removal of pidfd_
  std::atomic<bool> given_up_ = false;
  std::atomic<int> pidfd_ = -1;  // valid from clone to exec; the kernel writes it before the child runs
};

/// Starts a program as vfork would: time and memory do not depend on the size of this process. The child
///  - leads its own process group,
///  - gets SIGHUP when the calling *thread* ends (PR_SET_PDEATHSIG): call from a thread that lives as long as
///    the session,
///  - has default signal dispositions, an empty signal mask and, of our descriptors, only those in `fds`.
/// Returns when exec has succeeded, which takes as long as its file system takes to respond, or when the
/// start is given up through `control`. Refuses with errc::worker_program when the program cannot be
/// executed, errc::system for anything else.
result<child> spawn(const spawn_request& request, start_control* control = nullptr);

/// Finds a program: a plain name in $PENSTOCK_LIBEXEC, in the folders of the running program and of the
/// library with this code, in ../libexec/penstock next to each, and then in PATH; a name with a slash is used
/// unchanged. Waits for the file systems of all these folders. Refuses (errc::worker_program), saying where
/// it looked.
result<std::string> find_program(const std::string& name);

}  // namespace penstock::process
