// What ties a child to its session: when the session ends, in whatever way, the child and all that it started
// end too. Three independent ropes: the end of a pipe, the end of the parent, and the signal of its death.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <chrono>
#include <functional>
#include <thread>

namespace penstock::process {

/// The session's end of the pipe. Children inherit `read_end`; nobody ever writes. The kernel closes
/// `write_end` when the session's process is gone.
struct lifeline {
  unique_fd read_end;
  unique_fd write_end;

  static result<lifeline> create();
};

/// The child's end: create one first thing in main. From construction on SIGHUP (which the kernel sends when
/// the parent dies) and end-of-file on the lifeline kill the whole process group. A stopped child gets
/// SIGCONT with it; only a stop that takes effect after the session's death - a race of microseconds that a
/// cgroup would close - keeps one alive. `tick` runs every `interval` on a thread that does no user work: it
/// proves that the process runs at all. The pipe's other end may live on in a process that the session's
/// program forked; the parent's pidfd tells its end all the same.
class lifeline_guard {
 public:
  lifeline_guard(int lifeline_fd, std::chrono::milliseconds interval, std::function<void()> tick);
  ~lifeline_guard();
  lifeline_guard(const lifeline_guard&) = delete;
  lifeline_guard& operator=(const lifeline_guard&) = delete;

 private:
  unique_fd parent_;
  unique_fd stop_;
  std::thread watcher_;
};

}  // namespace penstock::process
