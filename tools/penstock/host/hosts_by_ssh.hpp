// `penstock host --on MACHINE`: starts `penstock host --join` on other machines by ssh. The secret is sent through ssh's input. Hosts leave
// when that input closes: because this command ends them, was killed, or lost the connection. Used by host_command.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/process/spawn.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace penstock::cli {

class hosts_by_ssh {
 public:
  /// `arguments`: what follows "host" in the `command` on the other machine. `secret`: the contents of its --secret-file; empty if there is
  /// none.
  struct settings {
    std::vector<std::string> machines;
    std::string command;
    std::vector<std::string> arguments;
    std::string secret;
  };
  /// Call on a thread that lives until run() has returned. Fails with errc::worker_program if there is no ssh, and with errc::system if the
  /// system refuses.
  static result<std::unique_ptr<hosts_by_ssh>> start(const settings& what);
  ~hosts_by_ssh();
  hosts_by_ssh(const hosts_by_ssh&) = delete;
  hosts_by_ssh& operator=(const hosts_by_ssh&) = delete;

  /// Waits until all hosts have ended, and reports how the failed ones ended. Returns 0, or the first exit code other than 0.
  int run();
  /// Thread-safe. Workers finish their leases first, unless `at_once`.
  void leave(bool at_once);

 private:
  struct machine {
    std::string name;
    process::child ssh;
    unique_fd input;
    bool over = false;
  };
  hosts_by_ssh() = default;
  result<void> add(const std::string& program, const settings& what, const std::string& name);
  int ended(machine& of);

  std::mutex mutex_;  // guards what leave() changes: input, over
  std::vector<machine> machines_;
};

}  // namespace penstock::cli
