// Starts, messages and signals the GPU owner's process for its keeper. Runs on the session's io thread; any
// thread may call. The io thread passes the process's events and messages to the keeper.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

/// How many messages an owner may send unasked: 3 for hello, owner_opened and worker_gives_up, and 13 to
/// spare for gpu_processes_seen, for which each poll of the keeper allows one more.
inline constexpr std::uint64_t owner_messages_unasked = 16;

/// Descriptors to pass on.
struct owner_descriptors {
  int lifeline = -1;
  int arena = -1;
  int flight = -1;
  std::vector<int> cores{};  ///< cores that it may run on; empty: ours
};

/// Receives the events of the owner's process. shut_down() drops the handle.
struct owner_listeners {
  owner_keeper_actor keeper;
  output_listener* output = nullptr;
};

class owner_process final : public child_starter<std::uint32_t>,
                            public std::enable_shared_from_this<owner_process> {
 public:
  owner_process(process::io_thread& io, owner_descriptors fds) : io_(io), fds_(std::move(fds)) {}

  /// Call before the first start.
  void report_to(owner_listeners listeners) { listeners_ = std::move(listeners); }

  void start(std::uint32_t incarnation) override;
  void signal(std::uint32_t incarnation, int number) override;
  [[nodiscard]] std::string current_start() const override { return io_.spawner().current(); }
  /// Kills and reaps the process and reports nothing more. Blocks; do not call on the io thread.
  void shut_down();

 private:
  struct running {
    std::uint32_t incarnation = 0;
    std::unique_ptr<process::child_process> process;
    std::shared_ptr<protocol::owner_link> link;
  };

  /// The process is being spawned; signals are queued until it runs.
  struct starting {
    std::uint32_t incarnation = 0;
    std::vector<int> signals;
    std::shared_ptr<process::start_control> control;
  };

  void start_now(std::uint32_t incarnation);
  void started(std::uint32_t incarnation, result<linked_child> child);
  void on_end(std::uint32_t incarnation, const process::exit_report& report,
              const process::output_tail& tail);

  process::io_thread& io_;
  owner_descriptors fds_;
  owner_listeners listeners_;
  // On the io thread only:
  std::optional<starting> starting_;
  std::optional<running> running_;
  bool shut_down_ = false;
};

}  // namespace penstock::supervisor
