// Messages to the scheduler, and what it reports about samples and deaths.
#pragma once

#include "actors/protocol/burst_queue.hpp"
#include "actors/protocol/link.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/dataset/order/plan.hpp"
#include "runtime/schedule/epoch_book.hpp"
#include "runtime/schedule/ledger.hpp"

#include <penstock/report.hpp>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::scheduler {

/// A sample that was left out of its batch, with the dataset's name for it.
struct lost_sample {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t sample = 0;
  std::string name;
  std::string reason;          ///< why the sample failed
  std::uint32_t attempts = 0;  ///< how many attempts a quarantined sample had
  std::vector<std::string> causes;
  std::uint64_t alike = 0;  ///< for a failed sample: how many samples have failed for this reason, including this one
};

/// The sample, if any, that a worker's death is blamed on.
struct blame_decision {
  worker_ref who;
  std::optional<schedule::blame> blamed;
  std::uint64_t epoch = 0;  // the epoch of the sample in hand, blamed or not
  std::uint64_t sequence = 0;
  std::uint32_t held = 0;  // batches that others have to load again; in a pool, jobs
  std::uint32_t held_again = 0;  // of these, those that an earlier death had already lost
  std::optional<std::uint64_t> in_hand{};  // the sample that the worker was working on
};

/// The dataset is known: start leasing.
struct open_stream {
  std::shared_ptr<const plan> order;
  schedule::ledger_settings rules;
  schedule::stream_identity identity;
  schedule::stream_range range;
  std::optional<schedule::stream_state> resumed;
  std::vector<quarantine_report> quarantined;  ///< known from earlier runs
  double max_failed_fraction = 1;              ///< limit per epoch, as a fraction of its samples; more
                                               ///< failures end the run
  steady_time demanded{};                      ///< when the first batch was requested
};

/// Only the first `slots` slots of a worker's place have memory so far; none: all have, and the GPU owner can read them.
struct place_prepared {
  std::uint32_t worker = 0;
  std::optional<std::uint32_t> slots;
};

struct worker_joined {
  worker_ref who;
  std::uint32_t slots = 0;
  schedule::worker_kind kind = schedule::worker_kind::loader;
  std::shared_ptr<protocol::worker_link> link;
  std::shared_ptr<const unique_fd> parcels{};  ///< for a pool's worker: our end of its parcel socket
  std::optional<std::uint64_t> host{};         ///< the loader host that runs the worker; none: this machine
};

/// The process has been reaped. The scheduler replies with blame_decided.
struct worker_ended {
  worker_ref who;
  std::optional<schedule::flight_mark> mark;
  std::string sample_name;  ///< its name in the flight recorder
  std::string cause;        ///< "SIGSEGV", "exit 3", "hang"
  bool host_lost = false;   ///< the worker's loader host was lost: blame a sample only if its batch keeps losing hosts
  bool took_too_long = false;  ///< killed because of the time that its sample or job took
  std::optional<schedule::flight_mark> in_hand{};  ///< what the worker was working on, blamed or not
};

/// The process survives SIGKILL. No reply; worker_ended follows if it ever exits.
struct worker_written_off {
  worker_ref who;
  std::optional<schedule::flight_mark> mark;
  std::string sample_name;
  std::string cause;
  bool took_too_long = false;  ///< as in worker_ended
};

/// Let the worker finish its leases, then ask it to stop.
struct worker_drains {
  worker_ref who;
  bool after_current_batch = false;  ///< finish only the current batch; other workers load the rest again
};

struct lease_reported {
  worker_ref who;
  protocol::batch_loaded report;
};
using report_queue = protocol::burst_queue<lease_reported>;
struct leases_reported {
  std::shared_ptr<report_queue> queue;
};

struct slots_released {
  std::vector<std::uint64_t> uploads;
};

/// The consumer has taken the batch (rule S15).
struct batch_delivered {
  std::uint64_t upload = 0;
  std::optional<std::uint64_t> digest;
  /// When the consumer began to wait; empty from the owner's process, which always waits.
  std::optional<steady_time> demanded{};
  std::optional<steady_time> taken{};  ///< none: use the time when the scheduler receives this message
};
using delivery_queue = protocol::burst_queue<batch_delivered>;
struct batches_delivered {
  std::shared_ptr<delivery_queue> queue;
};

/// Skip a batch that has killed two owners.
struct poison_batch {
  stream_position position = 0;
  std::string reason;
};

/// The owner's process is gone: upload everything unacknowledged again. Orders carry the new era from now on.
struct owner_lost {
  std::uint64_t era = 0;
  std::optional<poison_batch> poison;
};

/// Continue at another position; batches of earlier seeks are dropped.
struct seek_stream {
  std::uint64_t seek_number = 0;
  schedule::stream_range range;
  std::shared_ptr<const plan> order;  ///< the new plan, if the seek changes it
};

/// The complete accounts of the stream.
struct stream_accounts {
  std::vector<schedule::epoch_account> epochs;
  std::optional<schedule::stream_state> state;  ///< none until the stream is open
};

/// Try a quarantined sample again, as if it had never killed a worker.
struct lift_quarantine {
  std::uint64_t sample = 0;
};

struct pause_stream {
  bool paused = false;
};

/// The sacrificial worker cannot start: quarantine the samples that wait to be tried alone.
struct cannot_try_alone {
  std::string reason;
};

/// Process everything already in the mailbox, then deliver the accounts.
struct tell_accounts {
  std::shared_ptr<std::promise<stream_accounts>> to;
  bool epochs = true;  ///< false: only the state, whose cost does not grow with the run
};

/// A message to itself: ask the ledger once the mailbox is empty.
struct decide {};

/// A message to itself: find batches that a second worker should load.
struct look_for_late_workers {};

/// The answers of the group's gate may have changed.
struct gate_moved {};

struct stop_scheduling {};

}  // namespace penstock::scheduler
