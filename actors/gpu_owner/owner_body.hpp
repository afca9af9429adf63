// What a GPU owner does that speaks with its session by a link: it follows the session's orders, and on the thread that
// calls run() it gives batches to the sink, or results of jobs to their programs. What is around it (owner_host) decides
// what its end means: the process of penstock-gpu ends with it (owner_main); threads of the session let go of everything
// (actors/session/owner_inside).
//
// Three threads: the link's (messages), the GPU owner actor's, and run()'s, the consumer: it takes batches in order, gives
// them to the sink and acknowledges them. Uploads continue meanwhile.
//
// Order: a slot is reported as copied before its batch is acknowledged, and batches are acknowledged in the order in which
// they were ordered: the device finishes them in that order, and run()'s thread alone acknowledges.
#pragma once

#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/gpu_owner/owner_batches.hpp"
#include "runtime/device/gpu_process_watch.hpp"

#include <atomic>
#include <future>
#include <mutex>

namespace penstock::gpu_owner {

class owner_host {
 public:
  /// The session has said what to open; `settings` is the config in it. On the link's thread, once.
  virtual void introduced(const protocol::open_owner& order, const config& settings) = 0;
  /// The owner ends with this exit code, and with last words if it has any. From any thread but the link's. The first call
  /// counts; a process returns from none. On threads the body has to be asked to leave then.
  virtual void ends(int code, const std::optional<protocol::worker_gives_up>& last_words) = 0;
  /// The communicator cannot be aborted. A process does not return from this, others may not wait.
  virtual void stuck(const std::string& why) = 0;

 protected:
  ~owner_host() = default;
};

class owner_body final : owner_news {
 public:
  /// All of these outlive it.
  struct surroundings {
    caf::actor_system* system = nullptr;
    owner_host* host = nullptr;
    int arena = -1;  ///< descriptors of the session's memory
    int flights = -1;
    bool outlived = false;  ///< nothing of it may be left when run() returns: its process goes on
  };

  explicit owner_body(surroundings around) : around_(around) {}

  /// Once, before the first message.
  void speak_through(std::shared_ptr<protocol::owners_session_link> link) { link_ = std::move(link); }
  /// A message of the session, on the link's thread.
  void hear(protocol::to_owner&& message);
  /// Works until the session has it stop, or something fails: the host hears which.
  void run();
  /// Has run() return soon: what waits for a batch or for other ranks gets this failure. From any thread.
  void ask_to_leave(const failure& why);
  /// On the link's thread, from time to time, if the process does not end when the communicator cannot be aborted: finds
  /// that while the owner's thread is held up in the abort.
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
  void communicator_stuck(const std::string& why) override { around_.host->stuck(why); }
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

  surroundings around_;
  std::shared_ptr<protocol::owners_session_link> link_;
  std::shared_ptr<hand_over> consumer_ = std::make_shared<hand_over>();
  std::shared_ptr<device::device> device_;
  std::shared_ptr<batch_times> times_;               // like device_: none before open_owner
  std::shared_ptr<communicator_side> communicator_;  // like device_; none without a group that has one
  gpu_owner_actor owner_;
  std::optional<device::gpu_process_watch> watch_;  // reports to the link

  std::mutex hearing_;  // held while a message is followed
  bool deaf_ = false;   // run() lets go of what messages are about

  // Set on the link's thread before plan_is_known_, read-only after that.
  config config_;
  protocol::open_owner order_;
  arena::geometry shape_;
  std::shared_ptr<const device::transfer_plan> plan_;
  std::optional<failure> refused_;    // open_owner could not be followed
  std::promise<bool> plan_is_known_;  // false: refused, or asked to stop before that
  bool planned_ = false;

  std::atomic<bool> finished_{false};  // the sink, after a whole stream
  std::atomic<bool> whole_{false};
  struct {
    std::atomic<std::uint64_t> uploads{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<bool> pinned{false};
  } uploaded_;                            // since the last counts()
  std::atomic<stream_position> base_{0};  // batches before this one are in the program's state
  std::atomic<bool> alone_{false};        // the group is over

  // Used by run()'s thread only.
  std::shared_ptr<batch_home> home_;
  std::optional<arena::flight_writer> flight_;
};

}  // namespace penstock::gpu_owner
