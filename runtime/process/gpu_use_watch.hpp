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

  /// Starts checking these processes one by one. Does nothing while an earlier check is still running: a
  /// process that hangs during its check hides the others until it is killed. Does not wait.
  void look(std::vector<pid_t> leaders);
  /// The latest finding about a process; nothing if it does not use the GPU or was not part of the last
  /// completed check. Does not wait.
  [[nodiscard]] std::optional<gpu_user> found_in(pid_t leader) const;

 private:
  struct findings;
  std::shared_ptr<findings> findings_;
  side_thread thread_;
};

}  // namespace penstock::process
