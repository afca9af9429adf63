// The common part of starting any child process of a session: it looks the program up and gives it a link, a
// log pipe and the session's shared descriptors (protocol::child_fd). Used by worker_processes and
// owner_process, each with its own messages on the link.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::supervisor {

struct linked_child_request {
  std::string who;      ///< for messages: "a worker", "the GPU owner"
  std::string program;  ///< resolved by find_program
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< all of it
  int lifeline = -1;                     ///< descriptors to pass on
  int arena = -1;
  int flight = -1;
  int index = -1;        ///< -1: none
  bool parcels = false;  ///< a socket pair for large arguments and results, instead of the index
};

struct linked_child {
  std::unique_ptr<process::child_process> process;
  unique_fd link;     ///< the session's end
  unique_fd parcels;  ///< the session's end, if requested
};

/// Starts it without waiting; call on the io thread. `then` is called there once, perhaps before this
/// returns, with the child or with the reason why it could not be started: a program that cannot be found or
/// executed, or no free descriptors. It is not called if the io thread ends first; the child is then killed.
/// The descriptors of the request may be closed at once. Returns the start_control for giving the start up,
/// like spawner::start; null if it was refused already.
std::shared_ptr<process::start_control> start_linked_child(process::io_thread& io,
                                                           linked_child_request request,
                                                           process::child_callbacks callbacks,
                                                           std::function<void(result<linked_child>)> then);

}  // namespace penstock::supervisor
