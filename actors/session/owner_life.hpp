// One incarnation of a GPU owner inside of this process: its threads, and all that they use, since they may be left behind.
// Used by owner_inside alone.
#pragma once

#include "actors/gpu_owner/owner_body.hpp"
#include "actors/protocol/actor_settings.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/ticker.hpp"

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace penstock::session {

class owner_life final : gpu_owner::owner_host {
 public:
  struct end {
    int code = 0;  ///< as of a process
    std::optional<failure> last_words{};
    bool left_behind = false;  ///< its threads have not ended
  };
  struct surroundings {
    unique_fd link;
    unique_fd arena;
    unique_fd flights;
    nanoseconds patience{};                 ///< from the moment in which it has to leave
    std::function<void(const end&)> ended;  ///< called once, on one of its threads; may not wait
  };

  explicit owner_life(surroundings around) : around_(std::move(around)) {}
  ~owner_life();
  owner_life(const owner_life&) = delete;
  owner_life& operator=(const owner_life&) = delete;

  /// All of it, on a thread of its own, which holds it.
  void run() noexcept;
  // From any thread:
  void ask_to_leave();
  /// Nobody hears of its end any more.
  void be_quiet();
  /// False after that time.
  [[nodiscard]] bool wait_until_gone(nanoseconds at_most);

 private:
  void introduced(const protocol::open_owner& order, const config& settings) override;
  void ends(int code, const std::optional<protocol::worker_gives_up>& last_words) override;
  void stuck(const std::string& why) override { leave_behind(why); }
  void live();
  void let_go();
  void tick();
  void leave_behind(const std::string& why);
  void tell_end(const end& how);

  surroundings around_;

  // In the order of construction, on run()'s thread.
  std::unique_ptr<protocol::actor_settings> settings_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<process::io_thread> io_;
  std::unique_ptr<gpu_owner::owner_body> body_;
  std::shared_ptr<protocol::owners_session_link> link_;

  // On its io thread only.
  std::unique_ptr<process::ticker> ticker_;
  std::optional<arena::flight_writer> page_;

  std::mutex mutex_;                         // guards the members below
  gpu_owner::owner_body* there_ = nullptr;   // while it can be asked to leave
  std::optional<int> code_;                  // it ends with this one
  std::optional<steady_time> leaves_since_;  // it has to
  bool said_why_ = false;                    // by a message
  bool told_ = false;
  std::promise<void> gone_;
  std::shared_future<void> is_gone_ = gone_.get_future().share();
};

}  // namespace penstock::session
