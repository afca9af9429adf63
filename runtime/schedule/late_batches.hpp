// Whether the stream has waited for its next batch for far longer than batches usually take (rule H12). Pure:
// time is an argument. Driven by actors/scheduler.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/schedule/late_reads.hpp"

#include <map>
#include <optional>

namespace penstock::schedule {

/// Has one entry for each leased batch.
class late_batches {
 public:
  void leased(stream_position position, steady_time now) { begun_[position] = now; }
  void loaded(stream_position position, steady_time now);
  /// `head`: the batch that the stream needs next, which a worker must have. Call regularly: the wait for a
  /// batch counts from the first call that names it. The limit is twice the 99th percentile of the times from
  /// lease to arrival, but at least `limit_min`; nothing is late until `peers_min` batches have arrived.
  [[nodiscard]] bool is_late(stream_position head, steady_time now);
  /// When to ask again.
  [[nodiscard]] nanoseconds pause() const noexcept;
  /// For a seek.
  void forget() { begun_.clear(); }

  static constexpr std::uint64_t peers_min = 32;
  static constexpr nanoseconds limit_min = std::chrono::milliseconds(100);

 private:
  [[nodiscard]] std::optional<nanoseconds> limit() const noexcept;

  late_reads times_;
  std::uint64_t noted_ = 0;
  std::map<stream_position, steady_time> begun_;  // leased batches, with the time of the latest lease
  std::optional<stream_position> head_;
  steady_time head_since_{};
};

}  // namespace penstock::schedule
