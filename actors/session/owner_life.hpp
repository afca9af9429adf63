// One incarnation of a GPU owner inside this process. Owns its threads and all that they use, because it may
// have to abandon them. Used by owner_inside only.
#pragma once

#include "actors/caf/caf.hpp"
#include "actors/gpu_owner/owner_body.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/patient_deadline.hpp"
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
    int code = 0;  ///< with the meaning of a process's exit code
    std::optional<failure> last_words{};
    bool left_behind = false;  ///< its threads are still running
  };
  struct deps {
    unique_fd link;
    unique_fd arena;
    unique_fd flights;
    nanoseconds patience{};                 ///< how long the owner may take to leave, not counting pauses of the process
    std::function<void(const end&)> ended;  ///< called once, on one of the owner's threads; must not block
  };

  explicit owner_life(deps deps);
  ~owner_life();
  owner_life(const owner_life&) = delete;
  owner_life& operator=(const owner_life&) = delete;

  /// The whole life of the incarnation, on its own thread, which keeps this object alive.
  void run() noexcept;
  // Thread-safe:
  void ask_to_leave();
  /// Suppresses the report of the end.
  void be_quiet();
  /// Waits for the end of the incarnation. False if it is still running after that time.
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

  deps deps_;

  // Created in this order, on run()'s thread.
  std::unique_ptr<actors::actor_system> system_;
  std::unique_ptr<process::io_thread> io_;
  std::unique_ptr<gpu_owner::owner_body> body_;
  std::shared_ptr<protocol::owners_session_link> link_;

  // Used on the incarnation's io thread only.
  std::unique_ptr<process::ticker> ticker_;
  std::optional<arena::flight_writer> page_;
  patient_deadline leaving_;

  std::mutex mutex_;                         // guards the members below
  gpu_owner::owner_body* there_ = nullptr;   // set while the body can be asked to leave
  std::optional<int> code_;                  // the exit code of this incarnation, once known
  bool leaves_ = false;                      // the owner was asked to leave, or has decided to
  bool said_why_ = false;                    // whether the owner has sent the reason
  bool told_ = false;
  std::promise<void> gone_;
  std::shared_future<void> is_gone_ = gone_.get_future().share();
};

}  // namespace penstock::session
