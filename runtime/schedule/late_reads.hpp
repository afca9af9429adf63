// Whether a worker has been loading a sample for far longer than samples usually take ([loader] hedge, rule
// S45). Pure: time is an argument. Driven by actors/scheduler.
#pragma once

#include "runtime/base/clock.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

namespace penstock::schedule {

/// A sample that a worker is loading.
struct read_under_way {
  std::uint32_t worker = 0;
  steady_time since{};
};

/// Takes 1 KiB for any number of samples. Not thread-safe.
class late_reads {
 public:
  /// Records how long samples took.
  void note(std::span<const std::uint32_t> microseconds) noexcept;
  /// A sample that takes longer than this is late. Twice the 99.9th percentile, or four times the 99th if
  /// that is less: otherwise storage that stalls more often than once in 1000 reads would raise the limit. At
  /// least `limit_min`. Empty until `peers_min` samples are known.
  [[nodiscard]] std::optional<nanoseconds> limit() const noexcept;
  [[nodiscard]] std::set<std::uint32_t> late(std::span<const read_under_way> now_read, steady_time now) const;
  /// When to look again.
  [[nodiscard]] nanoseconds pause() const noexcept;
  /// The time that at most this share of the counted samples exceeded. The result may be
  /// up to an eighth too large.
  [[nodiscard]] nanoseconds longer_than_all_but(double share) const noexcept;

  static constexpr std::uint64_t peers_min = 128;
  static constexpr nanoseconds limit_min = std::chrono::milliseconds(50);

 private:
  // Eight buckets per octave. When they hold enough samples, all counts are halved, so that old ones fade.
  std::array<std::uint32_t, 256> counts_{};
  std::uint64_t total_ = 0;
};

}  // namespace penstock::schedule
