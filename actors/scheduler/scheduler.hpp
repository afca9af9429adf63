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

#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/protocol/link.hpp"
#include "actors/protocol/pile.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "runtime/schedule/failure_limit.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/report.hpp>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

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

/// The dataset is known: leases can be given out.
struct open_stream {
  std::shared_ptr<const plan> order;
  schedule::ledger_settings rules;
  schedule::stream_identity identity;
  schedule::stream_range range;
  std::optional<schedule::stream_state> resumed;
  std::vector<quarantine_report> quarantined;  ///< known from earlier runs
  double max_failed_fraction = 1;              ///< of an epoch's samples; more failures end the run
  steady_time demanded{};                      ///< when the first batch was asked for
};

struct worker_joined {
  worker_ref who;
  std::uint32_t slots = 0;
  schedule::worker_kind kind = schedule::worker_kind::loader;
  std::shared_ptr<protocol::worker_link> link;
};

/// The process is reaped. Answered through scheduler_news::death_judged.
struct worker_ended {
  worker_ref who;
  std::optional<schedule::flight_mark> mark;
  std::string sample_name;  ///< from the flight recorder
  std::string cause;        ///< "SIGSEGV", "exit 3", "hang"
};

/// It survives SIGKILL. Nothing is answered; worker_ended follows if it ever ends.
struct worker_written_off {
  worker_ref who;
  std::optional<schedule::flight_mark> mark;
  std::string sample_name;
  std::string cause;
};

/// Let it finish its leases, then send it home.
struct worker_drains {
  worker_ref who;
  bool hurries = false;  ///< only the batch at hand; others load the rest again
};

struct lease_reported {
  worker_ref who;
  protocol::batch_loaded report;
};
using report_pile = protocol::pile<lease_reported>;
struct leases_reported {
  std::shared_ptr<report_pile> pile;
};

struct slots_released {
  std::vector<std::uint64_t> uploads;
};

/// The consumer has it (semantics 4).
struct batch_delivered {
  std::uint64_t upload = 0;
  std::optional<std::uint64_t> digest;
  std::optional<steady_time>
      demanded{};                      ///< by the consumer; none from the owner's process, which always asks
  std::optional<steady_time> taken{};  ///< none: when the scheduler hears of it
};
using delivery_pile = protocol::pile<batch_delivered>;
struct batches_delivered {
  std::shared_ptr<delivery_pile> pile;
};

/// A batch that has killed two owners is left out.
struct poison_batch {
  stream_position position = 0;
  std::string reason;
};

/// The owner's process is gone: what is not acknowledged is uploaded again. Orders carry the new era from now
/// on.
struct owner_lost {
  std::uint64_t era = 0;
  std::optional<poison_batch> poison;
};

/// Go on at another place; batches of earlier seeks are not wanted any more.
struct seek_stream {
  std::uint64_t seek_number = 0;
  schedule::stream_range range;
};

/// The accounts of the stream, whole.
struct stream_accounts {
  std::vector<schedule::epoch_account> epochs;
  std::optional<schedule::stream_state> state;  ///< none until the stream is open
};

/// A quarantined sample is tried again, as if it had never killed anybody.
struct lift_quarantine {
  std::uint64_t sample = 0;
};

struct pause_stream {
  bool paused = false;
};

/// Everything that is in the mailbox before this is entered; then the accounts are told.
struct tell_accounts {
  std::shared_ptr<std::promise<stream_accounts>> to;
  bool epochs = true;  ///< false: the state alone, which costs the same however long the run is
};

/// Look at the ledger when the mailbox is empty.
struct decide {};

struct stop_scheduling {};

}  // namespace penstock::scheduler

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::open_stream)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::worker_joined)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::worker_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::worker_written_off)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::worker_drains)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::leases_reported)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::slots_released)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::batches_delivered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::owner_lost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::seek_stream)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::lift_quarantine)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::pause_stream)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::tell_accounts)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::decide)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(penstock::scheduler::stop_scheduling)

namespace penstock::scheduler {

using scheduler_actor = caf::typed_actor<
    caf::reacts_to<open_stream>, caf::reacts_to<worker_joined>, caf::reacts_to<worker_ended>,
    caf::reacts_to<worker_written_off>, caf::reacts_to<worker_drains>, caf::reacts_to<leases_reported>,
    caf::reacts_to<slots_released>, caf::reacts_to<batches_delivered>, caf::reacts_to<owner_lost>,
    caf::reacts_to<seek_stream>, caf::reacts_to<pause_stream>, caf::reacts_to<lift_quarantine>,
    caf::reacts_to<tell_accounts>, caf::reacts_to<decide>, caf::reacts_to<stop_scheduling>>;

/// A sample that left its batch, with the name that the dataset gave it.
struct lost_sample {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t sample = 0;
  std::string name;
  std::string reason;          ///< of a failure
  std::uint32_t attempts = 0;  ///< of a quarantined one
  std::vector<std::string> causes;
};

/// Whom the death of a worker is charged to.
struct judgement {
  worker_ref who;
  std::optional<schedule::charge> charged;
  std::uint64_t epoch = 0;  // of the charge
  std::uint64_t sequence = 0;
};

/// How many leases each worker holds, for who watches over hanging ones. Written by the scheduler, read by
/// the supervisor.
class lease_counts {
 public:
  explicit lease_counts(std::uint32_t places) : counts_(places) {}
  void set(std::uint32_t worker, std::uint32_t leases) noexcept {
    if (worker < counts_.size()) counts_[worker].store(leases, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t of(std::uint32_t worker) const noexcept {
    return worker < counts_.size() ? counts_[worker].load(std::memory_order_relaxed) : 0;
  }

 private:
  std::vector<std::atomic<std::uint32_t>> counts_;
};

/// What the scheduler tells the rest of the session. Plain functions, called on a scheduler thread of CAF;
/// they must only pass a message on or note something down.
struct scheduler_news {
  std::function<void(const judgement&)> death_judged;
  std::function<void(bool)> sacrificial_wanted;
  std::function<void(worker_ref, const std::string&)> worker_lied;
  /// A draining worker has nothing left and was told to end.
  std::function<void(worker_ref)> sent_home;
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

scheduler_actor spawn_scheduler(caf::actor_system& system, gpu_owner::gpu_owner_actor owner,
                                scheduler_news news);

}  // namespace penstock::scheduler
