// The scheduler actor: turns events into calls to the ledger, and the ledger's commands into messages. It
// makes no decisions itself.
//
//   receives  open_stream, place_prepared, worker_joined, worker_ended, worker_written_off, worker_drains
//                                                            from the supervisor and the session
//             leases_reported                                from the workers' links
//             slots_released, owner_lost                     from the GPU owner, or its keeper
//             batches_delivered, seek_stream, pause_stream   from the consumer's side
//             gate_moved                                     from the session, in a group
//   sends     load_batch, drop_batch, stop_work              to workers
//             sample_quarantined                             to the session actor
//             upload_batches                                 to the GPU owner
//             through scheduler_listener                         everything else
//   owns      the ledger, the plan, the accounts of the stream; how long samples take, with [loader] hedge
//
// It feeds all messages in the mailbox to the ledger before it asks for the next decision, so a burst costs
// one decision. Outstanding leases and uploads bound the mailbox.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/hand_over_gate.hpp"
#include "actors/protocol/local/lease_counts.hpp"
#include "actors/protocol/local/listeners.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/departures.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "runtime/schedule/failure_limit.hpp"
#include "runtime/schedule/ledger.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace penstock::actors {
class actor_system;
}

namespace penstock::scheduler {

struct scheduler_deps {
  std::shared_ptr<lease_counts> leases;
  std::shared_ptr<batch_times> times;  ///< records the times of batch stages; may be null
  scheduler_listener* listener = nullptr;      ///< outlives the actor
  /// The gate of a group: no batch passes before the group begins. Null: no group.
  std::shared_ptr<group::hand_over_gate> gate{};
  /// Uploads to another process pass the gate here, because that process has no gate to check.
  bool uploads_pass_gate = false;
  /// [loader] hedge: shows which sample each worker loads, and since when. Null: no hedges.
  std::shared_ptr<const arena::flight_recorders> flights{};
  /// The first place on another machine; late batches of such places are loaded by other workers, too. None: all places
  /// are local.
  std::optional<std::uint32_t> first_remote_place{};
};

/// Forwards workers' reports to the scheduler, in bursts.
class report_forwarder final : public supervisor::report_listener {
 public:
  explicit report_forwarder(scheduler_actor to) : to_(std::move(to)) {}
  bool reported(worker_ref who, protocol::from_worker& message) override;

 private:
  scheduler_actor to_;
  const std::shared_ptr<report_queue> queue_ = std::make_shared<report_queue>();
};

scheduler_actor spawn_scheduler(actors::actor_system& system, scheduler_deps deps);

}  // namespace penstock::scheduler
