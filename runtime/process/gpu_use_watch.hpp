// Finds processes that use the GPU, without blocking: /proc/PID/maps needs a lock that a process may hold
// while it hangs in the kernel, so a separate thread reads it. Used by the supervisor, once a second.
#pragma once

#include "runtime/process/side_thread.hpp"

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::process {

struct gpu_user {
  pid_t pid = 0;     ///< the process that uses it: the given one, or one that it started
  std::string what;  ///< "libcuda.so.1 is mapped"
};

/// The first process among this one and its descendants that uses the GPU. May block as long as any of them
/// hangs.
std::optional<gpu_user> gpu_user_among(pid_t leader);

class gpu_use_watch {
 public:
  using look_function = std::function<std::optional<gpu_user>(pid_t leader)>;

  explicit gpu_use_watch(look_function look = gpu_user_among);
  /// Waits side_thread::patience for the current check, but does not wait for checks known to hang.
  ~gpu_use_watch();
  gpu_use_watch(const gpu_use_watch&) = delete;
  gpu_use_watch& operator=(const gpu_use_watch&) = delete;

  /// Starts checks of these processes, one after the other. Does not wait. Call it at regular intervals.
  /// While the checks of an earlier call are running, a call does nothing. But if none of these checks has
  /// finished since the previous call, the current one counts as hung: it keeps its thread, and a new thread
  /// does the other checks. So a hung check delays the others by at most two intervals. Its process is not
  /// checked again while the check hangs. There is one thread per hung check, and one for all others.
  void look(std::vector<pid_t> leaders);
  /// The latest result for a process; empty if it does not use the GPU, if its check hangs, or if it was not
  /// in the last call that started checks. Does not wait.
  [[nodiscard]] std::optional<gpu_user> found_in(pid_t leader) const;

 private:
  struct findings;
  struct round;
  struct looker {
    std::unique_ptr<side_thread> thread;
    std::shared_ptr<round> at;
  };
  std::shared_ptr<findings> findings_;
  looker current_;
  std::vector<looker> hanging_;  // threads that each hang in the check of one process
};

}  // namespace penstock::process
