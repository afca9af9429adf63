// Receives the reports of a run's GPU owner, or of the keeper of the owner's process; records them on the
// board and publishes them as events. A session and a pool derive from it; they handle uploads and device
// failures.
//
// Threads: the owner or its keeper calls from its own thread; release_gpu() from any.
#pragma once

#include "actors/host/board.hpp"
#include "actors/host/ending.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/device/exclusive_use.hpp"
#include "runtime/device/gpu_process_watch.hpp"

#include <penstock/config.hpp>
#include <penstock/event.hpp>

#include <functional>
#include <mutex>
#include <optional>

namespace penstock::host {

class owner_reports : public gpu_owner::owner_listener, public supervisor::keeper_listener {
 public:
  struct deps {
    const config* settings = nullptr;
    bool elsewhere = false;  ///< the owner is another process
    host::board* board = nullptr;
    host::ending* ending = nullptr;
    std::function<void(event)> tell;
  };
  explicit owner_reports(deps deps) : deps_(std::move(deps)) {}

  void opened(const device::identity& what) final;
  void reopened(pid_t owner) override;
  void attached(const gpu_owner::attached_partition& what) override;
  void progressed(std::uint64_t uploads, std::uint64_t bytes, bool pinned) override;
  void owner_changed(const supervisor::owner_facts& facts) override;
  void owner_died(const owner_death_report& death) override;
  void owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) override;
  void owner_waited(nanoseconds in_all, std::optional<steady_time> waits_at) override;
  void gpu_processes_seen(std::vector<gpu_process> processes) override;
  void owner_closed() override;
  void gave_up(const failure& why) override = 0;

  /// Lets other sessions use the GPU. Call when no further uploads follow.
  void release_gpu();

 protected:
  ~owner_reports() = default;
  void record_failure(const failure& why);

 private:
  /// Called after opened(), unless another session has the GPU.
  virtual void device_ready(const device::identity& /*what*/) {}

  const deps deps_;
  std::mutex lock_guard_;                           // guards lock_
  std::optional<device::exclusive_use> lock_;       // the lock on the GPU
  std::optional<device::gpu_process_watch> watch_;  // watches the GPU's other processes while we hold it
};

}  // namespace penstock::host
