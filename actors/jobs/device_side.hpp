// The GPU owner of a pool: either an actor in this process and a thread that runs device programs, or the
// keeper of penstock-gpu. Reports the outcomes of uploads to the job scheduler, and everything else to the
// board and the journal. A failing device does not end a pool; only jobs that need the device fail.
//
// Threads: created, connected and closed on the pool's thread. What actors and the program thread call is
// thread-safe.
#pragma once

#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/host/owner_reports.hpp"
#include "actors/host/process_logs.hpp"
#include "actors/jobs/device_result.hpp"
#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "actors/supervisor/owner_process.hpp"
#include "runtime/arena/flight_recorder.hpp"

#include <penstock/config.hpp>
#include <penstock/event.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace penstock::jobs {

class device_side final : host::owner_reports, supervisor::job_upload_listener {
 public:
  struct deps {
    const config* settings = nullptr;
    arena::geometry shape;
    supervisor::owner_descriptors fds;                 ///< for an owner in its own process
    std::shared_ptr<arena::flight_recorders> flights;  ///< the owner's page follows the workers'
    host::board* board = nullptr;
    host::ending* ending = nullptr;
    host::process_logs* logs = nullptr;
    std::function<void(event)> tell;
  };

  /// Whether a pool with these settings has a device side.
  [[nodiscard]] static bool wanted(const config& settings);
  /// Refuses (errc::config) missing programs, and slots that are too large for a device.
  static result<void> check(const config& settings, const arena::geometry& shape);

  /// Refuses (errc::device_*) a device that this build does not support.
  static result<std::unique_ptr<device_side>> make(actors::actor_system& system, process::io_thread& io,
                                                   deps deps);
  device_side(actors::actor_system& system, process::io_thread& io, deps deps,
              std::shared_ptr<device::device> device);
  ~device_side();

  [[nodiscard]] const gpu_owner::gpu_owner_actor& owner() const noexcept { return owner_; }
  /// The buffers that callers hold; null if callers may hold none.
  [[nodiscard]] const std::shared_ptr<lent_buffers>& buffers() const noexcept { return buffers_; }
  /// Sets the receiver of reports, then opens the device.
  void open(job_scheduler_actor scheduler);
  /// An owner in its own process must exit within its share of the shutdown; it has exited or was killed when
  /// this returns. From then on, results on the device throw. The actors end soon afterwards.
  void close();

 private:
  class program_thread;

  // Called by the owner in this process, or by the keeper.
  void failed(const failure& why) override;
  void slots_released(std::vector<std::uint64_t> uploads) override;
  void gave_up(const failure& why) override { failed(why); }
  void jobs_answered(std::vector<device_answer> answers) override;
  void uploads_lost(device_lost loss) override;

  void spawn_owner(actors::actor_system& system);
  void spawn_keeper(actors::actor_system& system, process::io_thread& io);
  template <class Message>
  void to_scheduler(Message message);

  const deps deps_;
  std::shared_ptr<device::device> device_;  // null if the device belongs to another process
  gpu_owner::gpu_owner_actor owner_;        // the owner or its keeper
  std::shared_ptr<supervisor::owner_process> process_;
  std::shared_ptr<batch_home> home_;
  std::shared_ptr<lent_buffers> buffers_;
  std::unique_ptr<program_thread> programs_;
  const std::shared_ptr<device_answer_queue> answers_ = std::make_shared<device_answer_queue>();

  std::mutex mutex_;  // guards the members below
  job_scheduler_actor scheduler_;
  bool failed_ = false;
  bool closed_ = false;
};

}  // namespace penstock::jobs
