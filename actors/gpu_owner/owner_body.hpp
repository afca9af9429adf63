// The part of a GPU owner that exchanges messages with its session over a link. It carries out the session's
// orders; the thread that calls run() gives batches to the sink, or job results to their programs. Its host
// (owner_host) decides what happens at the end: the process of penstock-gpu exits (owner_main), but threads
// inside a session release everything (actors/session/owner_inside).
//
// Three threads: the link's (messages), the GPU owner actor's, and run()'s, the consumer, which takes batches
// in order, gives them to the sink and acknowledges them. Uploads continue meanwhile.
//
// Order: a slot is reported as copied before its batch is acknowledged, and batches are acknowledged in the
// order of the uploads: the device finishes them in that order, and only run()'s thread acknowledges.
#pragma once

#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/gpu_owner/owner_batches.hpp"
#include "runtime/device/gpu_process_watch.hpp"

#include <atomic>
#include <future>
#include <mutex>
#include <utility>

namespace penstock::gpu_owner {

class owner_host {
 public:
  /// Called once, on the link's thread, when the session has sent open_owner. `settings` is the config in that message.
  virtual void introduced(const protocol::open_owner& order, const config& settings) = 0;
  /// Ends the owner with this exit code, and first sends this final message, if any. Called from any thread but
  /// the link's. Only the first call counts; in a process, no call returns. On threads, call ask_to_leave() on
  /// the body afterwards.
  virtual void ends(int code, const std::optional<protocol::worker_gives_up>& last_words) = 0;
  /// The communicator cannot be aborted. In a process this does not return; other hosts must not block.
  virtual void stuck(const std::string& why) = 0;

 protected:
  ~owner_host() = default;
};

class owner_body final : owner_listener {
 public:
  /// All of these outlive the body.
  struct deps {
    actors::actor_system* system = nullptr;
    owner_host* host = nullptr;
    int arena = -1;  ///< descriptors of the session's memory
    int flights = -1;
    bool outlived = false;  ///< the process continues after run(), which must leave nothing behind
  };

  explicit owner_body(deps deps) : deps_(deps) {}

  /// Call once, before the first message.
  void speak_through(std::shared_ptr<protocol::owners_session_link> link) { link_ = std::move(link); }
  /// Handles a message of the session, on the link's thread.
  void hear(protocol::to_owner&& message);
  /// Works until the session stops it or something fails, and reports which to the host.
  void run();
  /// Makes run() return soon: if it waits for a batch or for other ranks, the wait fails with this failure.
  /// Any thread.
  void ask_to_leave(const failure& why);
  /// Call regularly on the link's thread, if the host's process must survive a communicator that cannot be
  /// aborted. Detects a hung abort even while it blocks the owner's thread.
  void check_deadlines(steady_time now);

 private:
  void hear(const protocol::open_owner& order);
  void hear(const protocol::prepare_owner& order);
  void hear(const protocol::map_partition& order);
  void hear(protocol::upload_slots& order);
  void hear(protocol::upload_jobs& order);
  void hear(const protocol::stop_owner& order);
  void hear(protocol::wire_communicate& order);
  void refuse_order(failure why);
  void opened(const device::identity& what) override;
  void failed(const failure& why) override { die(why); }
  void slots_released(std::vector<std::uint64_t> uploads) override;
  void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) override;
  void attached(const attached_partition& what) override;
  void communicator_changed(const group::communicator_state& state) override;
  void communicator_drawn(std::uint64_t number, const std::string& id) override;
  void communicator_stuck(const std::string& why) override { deps_.host->stuck(why); }
  void work();
  void run_sink();
  void run_programs();
  void let_go();
  void say_end();
  void end_communicator();
  upload_counts counts() {
    return {uploaded_.uploads.exchange(0), uploaded_.bytes.exchange(0), uploaded_.pinned};
  }
  void tell_processes(const std::vector<gpu_process>& seen);
  void die(const failure& why);

  deps deps_;
  std::shared_ptr<protocol::owners_session_link> link_;
  std::shared_ptr<hand_over> consumer_ = std::make_shared<hand_over>();
  std::shared_ptr<device::device> device_;
  std::shared_ptr<batch_times> times_;               // like device_: null before open_owner
  std::shared_ptr<communicator_side> communicator_;  // like device_; null without a group's communicator
  gpu_owner_actor owner_;
  std::optional<device::gpu_process_watch> watch_;  // reports to the link

  std::mutex hearing_;  // held while a message is being handled
  bool deaf_ = false;   // run() is releasing what messages refer to

  // Set on the link's thread before planned_ is decided; read-only afterwards.
  config config_;
  protocol::open_owner order_;
  arena::geometry shape_;
  std::shared_ptr<const device::transfer_plan> plan_;
  struct {
    std::promise<bool> is_known;     // false: refused, or asked to stop before the plan was known
    bool decided = false;
    std::optional<failure> refused;  // why open_owner could not be carried out

    void decide(bool known) {
      if (!std::exchange(decided, true)) is_known.set_value(known);
    }
  } planned_;

  std::atomic<bool> finished_{false};  // the sink has finished a whole stream
  struct {
    std::atomic<std::uint64_t> uploads{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<bool> pinned{false};
  } uploaded_;                            // counted since the previous counts()
  stream_marks marks_;

  // Used by run()'s thread only.
  std::shared_ptr<batch_home> home_;
  std::optional<arena::flight_writer> flight_;
};

}  // namespace penstock::gpu_owner
