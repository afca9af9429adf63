// The actors' interface for starting and signalling child processes: calls never wait; what the process does
// is reported by messages. Implemented by worker_processes and owner_process; tests replace it.
#pragma once

#include <string>

namespace penstock::supervisor {

/// Ref names a child: worker_ref, or the owner's incarnation.
template <class Ref>
class child_starter {
 public:
  virtual ~child_starter() = default;
  virtual void start(Ref child) = 0;
  /// Signals the child's whole group; does nothing if it is gone. A child that is being started gets the
  /// signal when it runs; SIGKILL gives the start up.
  virtual void signal(Ref child, int number) = 0;
  /// What the current start waits for, of whichever child: "executing '/mnt/worker'". Empty if there is none.
  [[nodiscard]] virtual std::string current_start() const = 0;
};

}  // namespace penstock::supervisor
