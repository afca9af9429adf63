// Workers that run on other machines, as worker_processes starts and signals them.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/child_process.hpp"

#include <functional>

namespace penstock::supervisor {

struct remote_child {
  pid_t pid = -1;  ///< on that machine
  unique_fd link;     ///< the session's end
  unique_fd parcels;  ///< in a pool: the session's end
};

/// Everything happens on the session's io thread.
class remote_workers {
 public:
  virtual ~remote_workers() = default;
  /// Whether this place belongs to workers on other machines.
  [[nodiscard]] virtual bool has(std::uint32_t worker) const = 0;
  /// Calls `then` once, perhaps before returning; afterwards it uses `calls` as for a child on this machine.
  virtual void start(worker_ref who, process::child_callbacks calls, std::function<void(result<remote_child>)> then) = 0;
  /// Does nothing if there is no such worker.
  virtual void signal(worker_ref who, int number) = 0;
};

}  // namespace penstock::supervisor
