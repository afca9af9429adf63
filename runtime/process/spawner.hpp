// The thread that starts a session's children. Looking a program up and executing it wait for file systems,
// and one that does not respond (a dead NFS server) must not hold up the io thread, which delivers signals to
// children. Besides, PR_SET_PDEATHSIG follows the spawning thread, which therefore has to live as long as the
// session. Owned by io_thread.
#pragma once

#include "runtime/process/side_thread.hpp"
#include "runtime/process/spawn.hpp"

#include <functional>
#include <memory>

namespace penstock::process {

/// A child that was just started. Unless it is taken, the destructor kills and reaps it.
class unclaimed_child {
 public:
  explicit unclaimed_child(child started) noexcept : child_(std::move(started)) {}
  unclaimed_child(unclaimed_child&&) noexcept = default;
  unclaimed_child& operator=(unclaimed_child&&) = delete;
  ~unclaimed_child();

  [[nodiscard]] child claim() && noexcept { return std::move(child_); }

 private:
  child child_;
};

class spawner {
 public:
  /// Called once on the spawner's thread, in the order of the requests. Must not call the spawner. Not called
  /// after the spawner's destruction has begun.
  using done = std::function<void(result<unclaimed_child>)>;

  spawner();
  /// Drops requests that have not started. Waits side_thread::patience for the current one; a thread that
  /// hangs in a file system longer is left behind and kills what it may still start.
  ~spawner();
  spawner(const spawner&) = delete;
  spawner& operator=(const spawner&) = delete;

  /// Starts a program, found by find_program; never blocks. From any thread. The descriptors in the request
  /// are duplicated at once: the caller may close its own. Refuses, through `then`, like find_program and
  /// spawn, and with errc::system when it gets no descriptor or thread.
  void start(spawn_request request, done then);

 private:
  struct gate;
  std::shared_ptr<gate> gate_;
  side_thread thread_;
};

}  // namespace penstock::process
