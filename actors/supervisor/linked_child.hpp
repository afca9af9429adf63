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
  std::string program;  ///< as find_program takes it
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< all of it
  int lifeline = -1;                     ///< descriptors that are handed over
  int arena = -1;
  int flight = -1;
  int index = -1;        ///< -1: none
  bool parcels = false;  ///< a socket pair for large arguments and results, in the place of the index
};

struct linked_child {
  std::unique_ptr<process::child_process> process;
  unique_fd link;     ///< the session's end
  unique_fd parcels;  ///< the session's end, if it was asked for
};

/// Starts it without waiting, on the io thread. `then` is called there, once, perhaps before this returns,
/// with the child or with why it could not be started: a program that cannot be found or executed,
/// descriptors that ran out. It is not called if the io thread ends before; then the child is killed. The
/// descriptors of the request may be closed at once. Gives that by which the start can be given up, as
/// spawner::start does; null if it was refused already.
std::shared_ptr<process::start_control> start_linked_child(process::io_thread& io,
                                                           linked_child_request request,
                                                           process::child_callbacks callbacks,
                                                           std::function<void(result<linked_child>)> then);

}  // namespace penstock::supervisor
