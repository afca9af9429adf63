// The keeper of the GPU owner's process (placement = "process"). To everybody else it is the GPU owner: it hears the
// same messages. It starts penstock-gpu, tells it what it was told, and when the process dies starts another one and
// tells that one the same. What is to be done is decided by supervision::owner_supervision; this actor translates.
//
//   hears   what a GPU owner hears                                                       from session and scheduler
//           owner_started, owner_refused, owner_spoke, owner_lost_link, owner_exited     from owner_process
//           restart_owner                                                                from the operator
//   says    open_owner, prepare_owner, map_partition, upload_slots, stop_owner           to the process
//           batches_delivered, slots_released, owner_lost                                to the scheduler
//   owns    the process and its link, what every incarnation has to be told
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/supervisor/child_starter.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/device/device.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

namespace penstock::supervisor {

/// What is known of the owner's process.
struct owner_facts {
  std::string state;  ///< starting, ready, backoff, failed, stopped
  std::optional<pid_t> pid;
  std::uint32_t restarts = 0;
  bool irreplaceable = false;  ///< its death fails the run: its sink keeps state and gives no snapshots

  bool operator==(const owner_facts&) const = default;
};

/// What the keeper tells the rest of the session; called on a scheduler thread of CAF, must not block.
struct keeper_news {
  std::function<void(const device::identity&)> opened;
  std::function<void(const owner_facts&)> changed;
  std::function<void(const owner_death_report&)> died;  ///< as soon as it is known
  std::function<void(pid_t owner)> reopened;            ///< the replacement has opened the device
  /// Uploads go on after the death of this incarnation.
  std::function<void(std::uint32_t incarnation, double seconds_since_its_end)> recovered;
  std::function<void(std::uint64_t uploads, std::uint64_t bytes, bool pinned)> progressed;
  std::function<void(nanoseconds in_all)> waited;
  std::function<void(std::vector<gpu_process>)> processes_seen;  ///< by NVML, on the GPU
  std::function<void(const failure&)> gave_up;
  std::function<void()> closed;
};

struct keeper_surroundings {
  config settings;
  std::string sink = "null";
  std::string out;
  bool digests = false;
  std::uint32_t flight_page = 0;
  std::shared_ptr<child_starter<std::uint32_t>> process;
  std::shared_ptr<scheduler::delivery_pile> deliveries;
  std::shared_ptr<batch_times> times;  ///< where the stages of batches are stamped; may be null
  std::shared_ptr<arena::flight_recorders> flights;
  keeper_news news;
};

owner_keeper_actor spawn_owner_keeper(caf::actor_system& system, keeper_surroundings around);

}  // namespace penstock::supervisor
