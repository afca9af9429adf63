// The GPU owner's process as its keeper handles it: start, speak, signal. Lives on the session's io thread;
// any thread may ask. What the process does comes back through callbacks on the io thread.
#pragma once

#include "actors/protocol/link.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervisor {

/// Descriptors that are handed over.
struct owner_descriptors {
  int lifeline = -1;
  int arena = -1;
  int flight = -1;
};

/// Each names the incarnation that it is about.
struct owner_callbacks {
  std::function<void(std::uint32_t, pid_t, std::shared_ptr<protocol::owner_link>)> started;
  std::function<void(std::uint32_t, const failure&)> start_failed;
  std::function<void(std::uint32_t, protocol::from_owner&&)> spoke;
  std::function<void(std::uint32_t, const std::string& reason)> link_closed;
  std::function<void(std::uint32_t, std::string_view line)> wrote;
  /// Reaped, so its device memory is back; everything it said before is delivered.
  std::function<void(std::uint32_t, const process::exit_report&, const process::output_tail&)> ended;
};

class owner_process final : public child_starter<std::uint32_t>,
                            public std::enable_shared_from_this<owner_process> {
 public:
  owner_process(process::io_thread& io, owner_descriptors fds, owner_callbacks callbacks)
      : io_(io), fds_(fds), callbacks_(std::move(callbacks)) {}

  void start(std::uint32_t incarnation) override;
  /// To the whole group of that incarnation; as soon as it runs if it is being started, nothing if it is
  /// gone.
  void signal(std::uint32_t incarnation, int number) override;
  /// Kills and reaps whatever is left and gives no more callbacks. Blocks; not from the io thread.
  void shut_down();

 private:
  struct running {
    std::uint32_t incarnation = 0;
    std::unique_ptr<process::child_process> process;
    std::shared_ptr<protocol::owner_link> link;
  };

  /// The spawning thread is at work for it; signals that come meanwhile wait.
  struct starting {
    std::uint32_t incarnation = 0;
    std::vector<int> signals;
  };

  void start_now(std::uint32_t incarnation);
  void started(std::uint32_t incarnation, result<linked_child> child);
  void on_end(std::uint32_t incarnation, const process::exit_report& report,
              const process::output_tail& tail);

  process::io_thread& io_;
  owner_descriptors fds_;
  owner_callbacks callbacks_;
  // On the io thread only:
  std::optional<starting> starting_;
  std::optional<running> running_;
  bool shut_down_ = false;
};

}  // namespace penstock::supervisor
