// When batches are leased, loaded and ordered, for `penstock trace`, `top` and the metrics. Used by the scheduler actor, on
// its thread.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/schedule/ledger.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace penstock::scheduler {

/// `times` may be null.
class lease_times {
 public:
  void record_in(std::shared_ptr<batch_times> times) { times_ = std::move(times); }

  void leased(const schedule::load_command& load, std::uint64_t sequence, steady_time now) {
    if (!times_) return;
    const auto& lease = load.lease;
    leased_[{lease.holder.worker, lease.slot}] = load.position;
    times_->lease({0,
                   load.position,
                   load.epoch,
                   sequence,
                   lease.holder.worker,
                   lease.holder.incarnation,
                   lease.slot,
                   static_cast<std::uint32_t>(load.samples.size()),
                   {}},
                  now);
  }
  /// `busy`: how long the worker says that the batch took; `reading`: how much of that it waited for storage.
  void loaded(std::uint32_t worker, std::uint32_t slot, nanoseconds busy, nanoseconds reading, steady_time now) {
    const auto lease = leased_.find({worker, slot});
    if (lease != leased_.end()) times_->note_loaded(lease->second, busy, reading, now);
  }
  void ordered(stream_position position, steady_time now) {
    if (times_) times_->note(position, batch_stage::ordered, now);
  }
  /// For a seek.
  void forget() {
    if (times_) times_->forget();
  }

 private:
  std::shared_ptr<batch_times> times_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, stream_position> leased_;  // by worker and slot
};

}  // namespace penstock::scheduler
