// Finds processes that use the GPU, without waiting for them: /proc/PID/maps needs a lock that a process may
// hold while it hangs in the kernel, so a separate thread reads it. Used by the supervisor, once a second.
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
  pid_t pid = 0;     ///< the process in question, or one that it started
  std::string what;  ///< "libcuda.so.1 is mapped"
};

/// The first process among this one and its descendants that uses the GPU. May block as long as any of them
/// hangs.
std::optional<gpu_user> gpu_user_among(pid_t leader);

class gpu_use_watch {
 public:
  using look_function = std::function<std::optional<gpu_user>(pid_t leader)>;

  explicit gpu_use_watch(look_function look = gpu_user_among);
  /// Waits side_thread::patience for the look at hand, and not at all for those that hang.
  ~gpu_use_watch();
  gpu_use_watch(const gpu_use_watch&) = delete;
  gpu_use_watch& operator=(const gpu_use_watch&) = delete;

  /// Has these processes looked at, one after the other. Does not wait. Call it in regular steps: while the
  /// looks of an earlier call go on, nothing happens; but when none of them has ended since the call before,
  /// the one at hand is taken to hang. It is left to its thread, and the others go on on a new one, so a
  /// process that hangs hides the others for at most two steps, and nobody looks at it a second time meanwhile.
  /// There are as many threads as processes that hang, and one more.
  void look(std::vector<pid_t> leaders);
  /// What was last found out about a process; nothing if it holds no GPU, hangs, or was not named by the last
  /// call that was heeded. Does not wait.
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
  std::vector<looker> hanging_;  // each in its look at one process
};

}  // namespace penstock::process
