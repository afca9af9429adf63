// The actors' interface for starting and signalling child processes: calls never wait, and messages report
// what the process does. Implemented by child_processes; tests replace it.
#pragma once

#include <string>

namespace penstock::supervisor {

/// Ref identifies a child: a worker_ref, or the owner's incarnation.
template <class Ref>
class child_starter {
 public:
  virtual ~child_starter() = default;
  virtual void start(Ref child) = 0;
  /// Signals the child's whole process group; does nothing if the child is gone. A child that is still
  /// starting gets the signal once it runs; SIGKILL cancels the start.
  virtual void signal(Ref child, int number) = 0;
  /// What the current start, of any child, waits for: "executing '/mnt/worker'". Empty if none is in
  /// progress.
  [[nodiscard]] virtual std::string current_start() const = 0;
};

}  // namespace penstock::supervisor
