// Workers that run on other machines, as worker_processes starts and signals them.
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/supervisor/linked_child.hpp"

#include <functional>

namespace penstock::supervisor {

/// Everything happens on the session's io thread.
class remote_workers {
 public:
  virtual ~remote_workers() = default;
  /// Whether this place belongs to workers on other machines.
  [[nodiscard]] virtual bool has(std::uint32_t worker) const = 0;
  /// Calls `then` once, perhaps before returning. After that, `calls` are made as for a child on this machine.
  virtual void start(worker_ref who, process::child_callbacks calls, std::function<void(result<linked_child>)> then) = 0;
  /// Does nothing if there is no such worker.
  virtual void signal(worker_ref who, int number) = 0;
};

}  // namespace penstock::supervisor
