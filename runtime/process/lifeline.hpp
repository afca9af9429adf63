// Ends a child, and everything it started, when its session ends in any way. Three independent mechanisms:
// end-of-file on a pipe, the parent's pidfd, and the parent death signal.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/wake_event.hpp"

#include <chrono>
#include <functional>
#include <thread>

namespace penstock::process {

/// The session's side of the pipe. Children inherit `read_end`; nothing is ever written. The kernel closes
/// `write_end` when the session's process ends.
struct lifeline {
  unique_fd read_end;
  unique_fd write_end;

  static result<lifeline> create();
};

/// The child's side: create it at the beginning of main. From then on SIGHUP (which the kernel sends when the
/// parent dies) and end-of-file on the lifeline kill the whole process group. A stopped child gets SIGCONT as
/// well. A child that is stopped within microseconds after the session's death can survive; only a cgroup
/// could prevent this. `tick` runs every `interval` on a thread that does no user work, as proof that the
/// process runs at all. If a process that the session's program forked holds the pipe's other end open, there
/// is no end-of-file; the parent's pidfd covers this case.
class lifeline_guard {
 public:
  lifeline_guard(int lifeline_fd, std::chrono::milliseconds interval, std::function<void()> tick);
  ~lifeline_guard();
  lifeline_guard(const lifeline_guard&) = delete;
  lifeline_guard& operator=(const lifeline_guard&) = delete;

 private:
  unique_fd parent_;
  wake_event stop_;
  std::thread watcher_;
};

}  // namespace penstock::process
