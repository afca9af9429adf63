// The thread that starts a session's children. Finding and executing a program waits for file systems, and an
// unresponsive one (a dead NFS server) must not hold up the io thread, which delivers signals to children.
// Also, PR_SET_PDEATHSIG follows the spawning thread, which must therefore live as long as the session. Owned
// by io_thread.
#pragma once

#include "runtime/process/side_thread.hpp"
#include "runtime/process/spawn.hpp"

#include <functional>
#include <memory>
#include <string>

namespace penstock::process {

/// A child that was just started. Unless it is taken, the destructor kills and reaps it.
class unclaimed_child {
 public:
  explicit unclaimed_child(child started, std::string program = {}) noexcept
      : child_(std::move(started)), program_(std::move(program)) {}
  unclaimed_child(unclaimed_child&&) noexcept = default;
  unclaimed_child& operator=(unclaimed_child&&) = delete;
  ~unclaimed_child();

  [[nodiscard]] child claim() && noexcept { return std::move(child_); }
  /// The path at which the program was found.
  [[nodiscard]] const std::string& program() const noexcept { return program_; }

 private:
  child child_;
  std::string program_;
};

class spawner {
 public:
  /// Called once on the spawner's thread, in the order of the requests. Must not call the spawner. Not called
  /// after the spawner's destruction has begun.
  using done = std::function<void(result<unclaimed_child>)>;

  spawner();
  /// Drops requests that have not been started, and cancels the current one. Waits side_thread::patience for
  /// it. A thread that hangs in a file system for longer is abandoned, and kills any child that it still
  /// starts.
  ~spawner();
  spawner(const spawner&) = delete;
  spawner& operator=(const spawner&) = delete;

  /// Starts a program; find_program resolves its name. Never blocks. From any thread. The descriptors of the
  /// request are duplicated at once: the caller may close its own. Refuses, through `then`, like find_program
  /// and spawn, and with errc::system when there is no descriptor or thread. Also refuses when the start is
  /// cancelled through the returned start_control: at once if SIGKILL ends the child, otherwise when the file
  /// system responds. A queued start that is cancelled is refused when its turn comes.
  std::shared_ptr<start_control> start(spawn_request request, done then);
  /// What the current start is waiting for, for messages: "executing '/mnt/worker'", "looking for 'worker'". Empty
  /// if there is none. From any thread.
  [[nodiscard]] std::string current() const;

 private:
  struct gate;
  std::shared_ptr<gate> gate_;
  side_thread thread_;
};

}  // namespace penstock::process
