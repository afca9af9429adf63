// The common part of starting any child process of a session: looks up the program and gives it a link, a log
// pipe and the session's shared descriptors (protocol::child_fd). Used by child_processes, each kind with its
// own messages on the link.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

struct linked_child_request {
  std::string who;      ///< for messages: "a worker", "the GPU owner"
  std::string program;  ///< resolved by find_program
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< the complete environment
  int lifeline = -1;                     ///< descriptors to pass on
  int arena = -1;
  int flight = -1;
  std::vector<int> indexes{};  ///< descriptors of the datasets' indexes; -1: none
  std::vector<int> cores{};    ///< cores that the child may run on; empty: those of the calling thread
  bool parcels = false;        ///< a socket pair for large arguments and results, instead of the indexes
  /// Starts the child in place of the spawner, under the rules of spawner::start. Empty: the spawner starts
  /// it.
  std::function<std::shared_ptr<process::start_control>(process::spawn_request, process::spawner::done)>
      start_with{};
};

struct linked_child {
  pid_t pid = -1;
  std::unique_ptr<process::child_process> process;  ///< null: another machine runs it, and `pid` is a process there
  unique_fd link;                                   ///< the session's end
  unique_fd parcels;                                ///< the session's end, if requested
  std::optional<std::uint64_t> host{};              ///< the loader host that runs the child; none: this machine
};

/// Starts the child without waiting; call on the io thread. Calls `then` there once, perhaps before
/// returning, with the child or with the reason why it could not start: the program cannot be found or
/// executed, or no descriptors are free. If the io thread ends first, `then` is not called and the child is
/// killed. The caller may close the request's descriptors at once. Returns the start_control that cancels the
/// start, like spawner::start; null if the start has already failed.
std::shared_ptr<process::start_control> start_linked_child(process::io_thread& io,
                                                           linked_child_request request,
                                                           process::child_callbacks callbacks,
                                                           std::function<void(result<linked_child>)> then);

}  // namespace penstock::supervisor
