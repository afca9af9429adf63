// The actors' interface for starting and signalling child processes: calls never wait, and what the process does comes
// back as messages. Implemented by worker_processes and owner_process; tests replace it.
#pragma once

#include <string>

namespace penstock::supervisor {

/// Ref names a child: worker_ref, or the owner's incarnation.
template <class Ref>
class child_starter {
 public:
  virtual ~child_starter() = default;
  virtual void start(Ref child) = 0;
  /// To the child's whole group; nothing if it is gone. One that is being started gets it when it runs; SIGKILL
  /// gives the start up.
  virtual void signal(Ref child, int number) = 0;
  /// What the start at hand waits for, whichever child it is for: "executing '/mnt/worker'". Empty: no start is.
  [[nodiscard]] virtual std::string start_at_hand() const = 0;
};

}  // namespace penstock::supervisor
