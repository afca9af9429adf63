// Runs the GPU owner as threads of this process, behind the interface that actors/supervisor/owner_process
// offers the keeper. For device programs that share a communicator with other ranks, in a session with
// placement = "embedded". It sends and receives the messages of the owner's process over a link, so keeper,
// snapshots and agreed steps are the same. Each incarnation has its own device, actor system and io thread,
// and runs its device program on its own thread.
//
// A signal can end a process but not a thread, so here a signal is a request. If the owner is waiting for a
// batch or for other ranks, the wait then fails; the communicator is aborted, the device closed, and the next
// incarnation begins. An owner that does not leave in time is abandoned with all its resources, and its final
// message says that this session cannot continue.
//
// Threads: any may call. Messages and the end of an owner are reported on the session's io thread.
#pragma once

#include "actors/protocol/local/owner_keeper_messages.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/process/io_thread.hpp"

#include <penstock/config.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

namespace penstock::session {

class owner_life;  // one incarnation

/// Whether batches go to a device program in this process that shares a communicator.
[[nodiscard]] inline bool owner_is_inside(const config& settings) {
  return settings.gpu.placement == placement_rule::embedded &&
         settings.group.communicator != communicator_kind::none;
}

class owner_inside final : public supervisor::child_starter<std::uint32_t>,
                           public std::enable_shared_from_this<owner_inside> {
 public:
  using news = std::variant<supervisor::owner_started, supervisor::owner_refused, supervisor::owner_spoke,
                            supervisor::owner_lost_link, supervisor::owner_exited>;
  struct deps {
    int arena = -1;  ///< descriptors; each incarnation duplicates them
    int flights = -1;
    nanoseconds abort_timeout{};
  };

  owner_inside(process::io_thread& io, deps deps) : io_(io), deps_(deps) {}
  ~owner_inside() override = default;
  owner_inside(const owner_inside&) = delete;
  owner_inside& operator=(const owner_inside&) = delete;

  /// Sets the keeper's callback. Call before the first start.
  void report_to(std::function<void(news)> tell) { tell_ = std::move(tell); }

  void start(std::uint32_t incarnation) override;
  /// Every signal but SIGCONT asks the owner to leave.
  void signal(std::uint32_t incarnation, int number) override;
  [[nodiscard]] std::string current_start() const override { return {}; }
  /// Asks the owner to leave and waits up to `at_most`, but at most 2 s. Reports nothing more. Blocks; do not
  /// call on the io thread.
  void shut_down(nanoseconds at_most = nanoseconds::max());

 private:
  struct running {
    std::uint32_t incarnation = 0;
    std::shared_ptr<owner_life> life;
    std::thread thread;
    std::shared_ptr<protocol::owner_link> link;
  };

  void start_now(std::uint32_t incarnation);
  [[nodiscard]] result<void> try_start(std::uint32_t incarnation);
  void on_end(std::uint32_t incarnation, int code, std::optional<failure> last_words, bool left_behind);

  process::io_thread& io_;
  deps deps_;
  // On the io thread only:
  std::function<void(news)> tell_;
  std::optional<running> running_;
  bool shut_down_ = false;
};

}  // namespace penstock::session
