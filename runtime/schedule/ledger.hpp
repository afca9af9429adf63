// The state of every batch of a stream: which worker loads it, which slot holds it, and what has not been
// delivered yet. Pure: no clock, no thread, no I/O. Events come in as calls, commands come out of advance().
// Driven by actors/scheduler.
//
// The life of a batch:
//
//            lease               loaded            in order             copied             acknowledged
//   waiting -------> leased -----------> loaded ------------> uploading --------> on_device ----------> gone
//      ^               | worker died       | an earlier batch     | owner died         | owner died
//      |               |                   | needs its slot       | (back to loaded)   |
//      |               |                   |                                           |
//      +---------------+-------------------+-------------------------------------------+
//
// A slot is busy from the lease until the device has copied it, so it is never written while it is read. A
// loaded batch survives the death of its worker: its bytes are complete, and the memory belongs to the
// session.
//
// Bounds. Every batch in flight has a slot, is on the device, waits for a lease that it lost or for a
// probation of one of its samples, or is the newest one and waits for a worker that may load it. So there are
// at most
//     slots of all loaders + buffers of the device + batches that lost a lease or wait for a probation + 1
// of them, and as many uploads as there are slots and buffers. In relaxed order there are also up to `window`
// batches that were delivered early: for these, only the counts remain.
//
// Leases ahead. A worker holds two leases of new batches (or settings.leases_ahead), however many slots it has: one to fill and
// one to fill next. So batches are left for workers that become ready late, and a worker reuses slots that
// are still in its CPU caches. If a worker runs out of leases although it has a free slot and there are new
// batches to lease, it is faster than our messages: from then on it may hold twice as many. While batches
// take slow_batch or longer, a worker holds only one lease: a second one would wait behind a slow batch while
// other workers are free. These limits do not apply to a batch that waits because it lost its lease, or
// because no worker could load it before.
//
// Hedges. A leased batch may be leased a second time, if its worker is late (rule S45). The first report makes it
// loaded; the other lease then belongs to no batch, and its report is ignored. If one of the two workers dies, the
// batch stays leased to the other.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/schedule/delivery_front.hpp"
#include "runtime/schedule/slot_table.hpp"
#include "runtime/schedule/suspicion.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock::schedule {

/// What the ledger needs to know of the plan. Each function is a pure function of its arguments.
class batch_source {
 public:
  virtual ~batch_source() = default;
  [[nodiscard]] virtual std::uint64_t epoch_of(stream_position position) const = 0;
  /// The planned samples of a batch, in order.
  [[nodiscard]] virtual std::vector<std::uint64_t> samples(stream_position position) const = 0;
  /// Another sample for a row whose sample is lost (rule S10); try_number is 1 .. 16.
  [[nodiscard]] virtual std::uint64_t replacement(stream_position position, std::uint32_t row,
                                                  std::uint32_t try_number) const = 0;
  /// The name of a sample in messages: "sample 17 (cats/tom.jpg)".
  [[nodiscard]] virtual std::string describe(std::uint64_t sample) const;
};

/// Positions [first, end) of the stream, except those that an earlier run delivered.
struct stream_range {
  stream_position first = 0;
  stream_position end = 0;
  std::uint64_t early = 0;  ///< batches after `first` that the earlier run delivered: delivery_front::early
};

struct ledger_settings {
  std::uint32_t max_attempts = 3;
  std::uint64_t quarantine_max = 8;  ///< more quarantined samples than this fail the run
  bad_sample_rule on_bad_sample = bad_sample_rule::skip;
  /// A batch may be uploaded at most this many positions ahead of the first batch that has not been uploaded
  /// (rule S38); 0: strict order. At most delivery_front::window_max.
  std::uint32_t window = 0;
  /// The number of leases of new batches that a worker may always hold. Set it higher for storage that is
  /// slow to answer: a worker starts to read a batch when it gets the lease.
  std::uint32_t leases_ahead = 2;
  /// Workers whose batches take this long hold one lease of a new batch at a time. The default is many times
  /// the time that a report and the next lease take on a busy machine. nanoseconds::max(): no limit.
  nanoseconds slow_batch = std::chrono::milliseconds(50);
  /// Slots of each worker reserved for hedges, and for the stream's first batch if it lost its lease.
  std::uint32_t spare_slots = 0;
};

struct planned_sample {
  std::uint64_t sample = 0;
  std::uint32_t attempt = 1;  ///< 1 + deaths blamed on the sample in this epoch
  bool operator==(const planned_sample&) const = default;
};

// ---- commands ---------------------------------------------------------------------------------------------

/// Sent to the lease's holder: fill the slot with these samples.
struct load_command {
  lease_ref lease;
  stream_position position = 0;
  std::uint64_t epoch = 0;
  std::vector<planned_sample> samples;
  bool hedge = false;  ///< another worker, which is late, also has the batch
};

/// Sent to the lease's holder: it need not finish the lease, because another worker has loaded the batch.
struct drop_command {
  lease_ref lease;
};

/// Sent to the GPU owner: copy this slot to the device. Emitted in the order in which batches are delivered:
/// by position, unless ledger_settings::window allows a different order.
struct upload_command {
  std::uint64_t upload = 0;  ///< identifies this upload in slot_released and acknowledged; never reused
  stream_position position = 0;
  std::uint32_t worker = 0;  ///< whose partition
  std::uint32_t slot = 0;
  std::vector<std::uint64_t> samples;  ///< sample indices of the rows, in order
};

/// Only for reports and logs, like sample_quarantined (suspicion.hpp).
struct sample_failed {
  stream_position position = 0;
  std::uint64_t sample = 0;
  std::string reason;
};
struct batch_discarded {
  stream_position position = 0;  ///< will be loaded again, because an earlier batch needed its slot
};

/// A batch that was leased to a dead worker has been loaded by another one.
struct batch_recovered {
  stream_position position = 0;
};

/// The run must fail. Emitted once; no leases and uploads after it.
struct give_up {
  failure reason;
};

using command = std::variant<load_command, drop_command, upload_command, sample_failed, sample_quarantined, batch_discarded,
                             batch_recovered, give_up>;

// ---- facts in events --------------------------------------------------------------------------------------

struct row_failure {
  std::uint32_t row = 0;  ///< index among the lease's samples
  std::string reason;
};

/// A worker's report on a lease.
struct load_report {
  lease_ref lease;
  std::uint32_t rows = 0;  ///< number of loaded samples, which are contiguous at the beginning of the slot
  std::vector<row_failure> failures;
  nanoseconds busy{0};  ///< how long the worker says that the batch took
};

/// The row that a worker was working on when it died, from its flight recorder.
struct flight_mark {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t row = 0;
};

/// The sample that a death is blamed on.
struct blame {
  stream_position position = 0;
  std::uint64_t sample = 0;
  std::uint32_t attempt = 1;
  bool alone = false;     ///< the sample was in the sacrificial worker, so this death quarantines it
  bool repeated = false;  ///< not counted: two workers had the batch, and the other worker's death counts
};

/// The counts of one batch, returned when it is acknowledged.
struct delivery {
  stream_position position = 0;
  std::uint32_t delivered = 0;    ///< rows
  std::uint32_t failed = 0;       ///< planned rows lost to failures
  std::uint32_t quarantined = 0;  ///< planned rows lost to quarantine
  std::uint32_t replaced = 0;     ///< rows filled with a different sample than planned
};

// ---- the ledger -------------------------------------------------------------------------------------------

/// Not thread-safe. `source` must outlive the ledger.
class ledger {
 public:
  ledger(ledger_settings settings, const batch_source& source, stream_range range);

  /// The commands to carry out now, in order. Call after one or several events.
  [[nodiscard]] std::vector<command> advance();

  // Workers. An incarnation joins once, when it is ready, and dies once; repeats are ignored.
  /// `host`: the loader host that runs the worker; empty: this machine.
  void worker_joined(worker_ref who, std::uint32_t slots, worker_kind kind = worker_kind::loader, std::optional<std::uint64_t> host = {});
  /// Call when the process is reaped, or when it survives SIGKILL. Other workers get its leases, and its next
  /// incarnation gets its slots; the next incarnation must not join before this one is reaped. Returns the
  /// sample blamed for the death, if any.
  std::optional<blame> worker_died(worker_ref who, std::optional<flight_mark> mark, const std::string& cause);
  /// Call before a worker joins in this place. Only its first `slots` slots have memory, and the device cannot read
  /// them yet. Until place_complete(), its other slots are not leased, and its batches are not uploaded.
  void place_grows(std::uint32_t worker, std::uint32_t slots);
  void place_complete(std::uint32_t worker);
  /// Gives this worker no new leases. It finishes those that it holds.
  void worker_drains(worker_ref who);

  /// A worker finished a lease.
  [[nodiscard]] arrival loaded(const load_report& report);

  /// These workers are late, so others load their batches, too, if the stream needs them soon. Each batch gets at most
  /// one copy; a batch with a sample that is suspected of killing workers gets none.
  void hedge(const std::set<std::uint32_t>& late);
  /// The batch that the stream needs next, if exactly one worker has it.
  struct head_lease {
    stream_position position = 0;
    std::uint32_t worker = 0;
  };
  [[nodiscard]] std::optional<head_lease> head() const;
  /// The stream has waited too long for the batch of head(), so an idle worker loads it, too,
  /// within the limits of hedge().
  void hedge_head();

  // The device. Unknown upload numbers come from a dead owner, and are dropped and counted.

  /// The upload's bytes are on the device, so the slot may be leased again.
  void slot_released(std::uint64_t upload);
  /// The consumer has the batch. Empty if the upload number is unknown.
  std::optional<delivery> acknowledged(std::uint64_t upload);
  /// Every unacknowledged batch will be uploaded again. A
  /// batch whose slot was reused is loaded again first.
  void owner_died();
  /// Call directly after owner_died(): this batch kills owners. It is delivered with 0 rows, and its samples
  /// count as failed with this reason, regardless of on_bad_sample. Returns the samples. They fail in this
  /// batch only: another batch may still use them as replacements. Otherwise the contents of other batches
  /// would depend on when the owners died, and on whether a resumed run knows of these deaths.
  std::vector<std::uint64_t> leave_out(stream_position position, const std::string& reason);

  /// Gives no new leases until resumed.
  void set_paused(bool paused) { paused_ = paused; }
  /// Continues at another position: drops everything prepared and not delivered.
  /// Leases and copies in progress are completed, but their results are ignored.
  void seek(stream_range range);
  /// A sample is known from an earlier run to kill workers.
  void quarantine_known(std::uint64_t sample) { suspicion_.quarantine_known(sample); }
  /// An operator releases a quarantined sample. Drops its deaths, so that it may be loaded again.
  void release_from_quarantine(std::uint64_t sample) { suspicion_.release(sample); }
  /// The sacrificial worker cannot be started. Samples that
  /// wait for it are quarantined, and the stream continues.
  void cannot_try_alone(const std::string& reason);

  // Queries.
  [[nodiscard]] bool finished() const noexcept { return base_ == range_.end; }
  /// Whether a sample must be tried alone. If so, start (or keep) the sacrificial worker.
  [[nodiscard]] bool wants_sacrificial() const noexcept { return suspicion_.anybody_isolated(); }
  /// Leases that the worker has not reported on yet.
  [[nodiscard]] std::uint32_t leases_of(std::uint32_t worker) const noexcept;
  /// How many of the worker's open leases are for batches that another worker held when it died.
  [[nodiscard]] std::uint32_t lost_before(std::uint32_t worker) const;
  /// The batch of a lease; empty if its result will be ignored.
  [[nodiscard]] std::optional<stream_position> position_of(const lease_ref& lease) const;
  [[nodiscard]] const hedge_counts& hedges() const noexcept { return hedges_; }
  [[nodiscard]] std::uint64_t stale_dropped() const noexcept { return stale_dropped_; }
  [[nodiscard]] std::uint64_t quarantined() const noexcept { return suspicion_.quarantined().size(); }
  [[nodiscard]] const std::set<std::uint64_t>& quarantined_samples() const noexcept {
    return suspicion_.quarantined();
  }
  /// The sample that a worker's flight mark refers to, if the mark matches a lease that the worker holds.
  [[nodiscard]] std::optional<blame> resolve(worker_ref who, const flight_mark& mark) const;

 private:
  enum class batch_state : std::uint8_t { waiting, leased, loaded, uploading, on_device, acknowledged };

  struct place {
    std::uint32_t worker = 0;
    std::uint32_t slot = 0;
  };

  struct batch {
    batch_state state = batch_state::waiting;
    std::vector<planned_sample> samples;  // samples of the lease; once loaded, those that did not fail
    std::uint32_t lost_to_failure = 0;
    std::uint32_t lost_to_quarantine = 0;
    std::uint32_t replaced = 0;
    // The worker whose slot holds the batch while it is leased, loaded or uploading.
    std::uint32_t worker = 0;
    std::uint32_t slot = 0;
    std::vector<std::uint32_t> avoid;  // workers that died of samples in this batch
    bool lost = false;                 // a worker died while it held this batch
    // Only while the batch is leased: its second lease, and the sample that killed one of the two workers.
    std::optional<place> second;
    std::optional<std::uint64_t> died_of;
  };

  struct slot_use {
    std::optional<stream_position> position{};  // empty: used by a probation, dropped by a seek, or no longer needed
    bool uploading = false;
  };
  struct lease_depth {
    std::uint32_t max = ledger_settings().leases_ahead;  // leases of new batches that the worker may hold
  };
  using table = slot_table<slot_use, lease_depth>;
  using stage = table::stage;
  using slot = table::slot;
  using worker_entry = table::worker;

  struct upload_entry {
    stream_position position = 0;
    std::uint32_t worker = 0;
    std::uint32_t slot = 0;
    bool released = false;  // the copy is done, and the slot may be leased again
    bool wanted = true;     // not acknowledged yet, and not dropped by seek
  };

  // A planned row after losses: the sample that fills it, or the reason why it stays empty.
  enum class loss : std::uint8_t { none, failed, quarantined };
  struct resolved_row {
    std::uint64_t sample = 0;
    loss lost = loss::none;
  };

  [[nodiscard]] batch& at(stream_position position) { return window_[position - base_]; }
  [[nodiscard]] const batch& at(stream_position position) const { return window_[position - base_]; }
  [[nodiscard]] bool in_window(stream_position position) const noexcept {
    return position >= base_ && position - base_ < window_.size();
  }
  void lease_probations();
  void lease_batches();
  enum class urgency : std::uint8_t { ahead, lost_lease, stream_waits };
  [[nodiscard]] bool has_room(const worker_entry& worker, urgency how) const noexcept;
  [[nodiscard]] bool batches_are_slow() const noexcept { return usual_busy_ >= settings_.slow_batch; }
  [[nodiscard]] bool eligible(std::uint32_t index, const worker_entry& worker, const batch& b) const;
  [[nodiscard]] std::optional<std::uint32_t> choose_worker(const batch& b, urgency how,
                                                           const std::set<std::uint32_t>& without = {}) const;
  [[nodiscard]] bool anyone_free(urgency how) const;
  bool try_lease(stream_position position, urgency how);
  void make_room_for_head();
  template <class MayLoad>
  bool discard_behind(stream_position head, MayLoad may_load);
  [[nodiscard]] bool may_run_twice(stream_position position) const;
  bool load_twice(stream_position position, const std::set<std::uint32_t>& without);
  [[nodiscard]] std::optional<std::uint32_t> choose_second(stream_position position,
                                                           const std::set<std::uint32_t>& late);
  bool other_goes_on(stream_position position, std::uint32_t died);
  void no_longer_needed(const place& where);
  void first_to_finish(batch& b, std::uint32_t worker);
  void upload_loaded();
  [[nodiscard]] bool may_be_next(stream_position position) const;
  void upload(stream_position position);
  [[nodiscard]] lease_ref take_slot(std::uint32_t worker, std::optional<stream_position> position);
  void end_lease(std::uint32_t worker, std::uint32_t index);
  void free_slot(std::uint32_t worker, std::uint32_t index);
  void back_to_waiting(stream_position position);
  void resolve_samples(stream_position position);
  [[nodiscard]] resolved_row resolve_row(stream_position position, std::uint32_t row,
                                         std::uint64_t planned) const;
  [[nodiscard]] loss loss_of(std::uint64_t epoch, std::uint64_t sample) const;
  [[nodiscard]] bool waits_for_probation(std::uint64_t epoch, const batch& b) const;
  void blame_death(blame& to, std::uint32_t worker, const std::string& cause);
  void tell_quarantined(sample_quarantined lost);
  void record_failure(stream_position position, std::uint64_t sample, const std::string& reason);
  void fail_run(failure reason);
  void probation_reported(const load_report& report);
  void forget_acknowledged();

  ledger_settings settings_;
  const batch_source& source_;
  stream_range range_;
  stream_position base_ = 0;         // position of window_[0], the first batch that is not acknowledged
  stream_position next_upload_ = 0;  // every earlier batch is uploading, on the device or gone
  std::deque<batch> window_;
  std::set<stream_position> waiting_;  // positions in the window that are not leased
  table workers_;
  // For places whose memory is not complete: how many slots have memory.
  std::map<std::uint32_t, std::uint32_t> growing_;
  std::map<std::uint64_t, upload_entry> uploads_;  // not released, or not acknowledged
  suspicion suspicion_;
  // Epoch and sample; only epochs that are not over.
  std::set<std::pair<std::uint64_t, std::uint64_t>> failed_;
  // Positions in the window that are delivered with 0 rows.
  std::set<stream_position> left_out_;
  std::vector<command> outbox_;
  std::uint64_t last_upload_ = 0;
  std::uint64_t stale_dropped_ = 0;
  hedge_counts hedges_;
  nanoseconds usual_busy_{0};  // a moving mean over batches
  bool paused_ = false;
  bool gave_up_ = false;
};

}  // namespace penstock::schedule
