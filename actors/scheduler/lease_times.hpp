// When batches are leased, loaded and ordered, for `penstock trace`, `top` and the metrics. Used by the scheduler actor, on
// its thread.
#pragma once

#include "actors/protocol/messages.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/base/text.hpp"
#include "runtime/schedule/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ranges>
#include <utility>

namespace penstock::scheduler {

/// `times` may be null.
class lease_times {
 public:
  void record_in(std::shared_ptr<batch_times> times) { times_ = std::move(times); }

  void leased(const schedule::load_command& load, std::uint64_t sequence, steady_time now) {
    // A hedge is a second lease of its batch: the times of the first one stay.
    if (!times_ || load.hedge) return;
    const auto& lease = load.lease;
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
  /// Records a loaded batch, with the times that the worker reports.
  void loaded(stream_position position, std::uint32_t worker, const protocol::batch_loaded& report, steady_time now) {
    if (!times_) return;
    const auto time = [](std::uint64_t ns) { return nanoseconds(static_cast<std::int64_t>(ns)); };
    load_times took{time(report.busy_ns), time(report.reading_ns), time(report.slow_ns)};
    if (!report.slowest.empty()) {
      took.slowest = time(report.slowest.front().took_ns);
      took.slowest_sample = report.slowest.front().index;
    }
    const nanoseconds busy = times_->note_loaded(position, took, now);
    for (const protocol::wire_timed_sample& s : report.slowest | std::views::take(sample_times::named_max))
      times_->note_sample({s.index, printable(s.name), std::clamp(time(s.took_ns), nanoseconds(0), busy)}, worker, now);
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
};

}  // namespace penstock::scheduler
