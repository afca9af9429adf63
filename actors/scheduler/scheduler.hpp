// The scheduler actor: turns what happens into calls of the ledger and the ledger's commands into messages.
// It decides nothing itself.
//
//   hears   open_stream, worker_joined, worker_ended, worker_written_off, worker_drains     from the
//   supervisor and the session
//           leases_reported                                             from the workers' links
//           slots_released, owner_lost                                  from the GPU owner, or its keeper
//           batches_delivered, seek_stream, pause_stream                from the consumer's side
//   says    load_batch, stop_work                                       to workers
//           upload_batches                                              to the GPU owner
//           through scheduler_news                                      everything that others want to know
//   owns    the ledger, the plan, the accounts of the stream
//
// Messages that wait in the mailbox are all entered into the ledger before it is asked what to do next, so a
// burst costs one decision. Its mailbox is bounded by the leases and uploads that are out.
#pragma once

#include "actors/protocol/local/actors.hpp"
#include "actors/protocol/local/lease_counts.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "runtime/schedule/failure_limit.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/report.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace caf {
class actor_system;
}

namespace penstock::scheduler {

/// What the scheduler tells the rest of the session. Plain functions, called on a scheduler thread of CAF;
/// they must only pass a message on or note something down.
struct scheduler_news {
  std::shared_ptr<lease_counts> leases;
  std::function<void(const lost_sample&)> sample_failed;
  std::function<void(const lost_sample&)> sample_quarantined;
  /// A batch was delivered; `stale_dropped` counts messages that came too late or were false.
  std::function<void(const schedule::delivery&, std::uint64_t epoch)> delivered;
  std::function<void(const schedule::epoch_account&)> epoch_done;
  /// A batch that a dead worker had is loaded after all.
  std::function<void(std::uint64_t epoch, std::uint64_t sequence)> batch_recovered;
  std::function<void(std::uint64_t stale_dropped, std::uint64_t quarantined)> counted;
  std::function<void(const failure&)> gave_up;
  std::function<void(std::uint64_t seek_number)> stream_finished;
  std::shared_ptr<batch_times> times;  ///< where the stages of batches are stamped; may be null
};

scheduler_actor spawn_scheduler(caf::actor_system& system, scheduler_news news);

}  // namespace penstock::scheduler
