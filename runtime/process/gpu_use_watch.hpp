// Which processes hold the GPU, found out without waiting for them: /proc/PID/maps needs a lock that a
// process may hold while it hangs in the kernel, so it is read on a thread of its own. Used by the
// supervisor, once a second.
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
  pid_t pid = 0;     ///< the process that was asked about, or one that it started
  std::string what;  ///< "libcuda.so.1 is mapped"
};

/// The first process among this one and its descendants that holds the GPU. May wait as long as any of them
/// hangs.
std::optional<gpu_user> gpu_user_among(pid_t leader);

class gpu_use_watch {
 public:
  using look_function = std::function<std::optional<gpu_user>(pid_t leader)>;

  explicit gpu_use_watch(look_function look = gpu_user_among);

  /// Has these processes looked at, one after the other. Nothing happens while an earlier look is still under
  /// way: a process that hangs while it is looked at hides the others until it is killed. Does not wait.
  void look(std::vector<pid_t> leaders);
  /// What was last found out about a process; nothing if it holds no GPU, or was not looked at by the last
  /// look that came to its end. Does not wait.
  [[nodiscard]] std::optional<gpu_user> found_in(pid_t leader) const;

 private:
  struct findings;
  std::shared_ptr<findings> findings_;
  side_thread thread_;
};

}  // namespace penstock::process
