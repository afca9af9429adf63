// The slowest samples. A worker finds the slowest samples of each batch. The
// session keeps the slowest of the last minutes for `penstock why` and `describe`.
#pragma once

#include "runtime/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace penstock {

/// A sample is slow if it takes slow_sample_factor times as long as usual, and at least slow_sample_excess
/// longer.
inline constexpr std::int64_t slow_sample_factor = 5;
inline constexpr nanoseconds slow_sample_excess = std::chrono::milliseconds(20);
[[nodiscard]] constexpr bool is_slow_sample(nanoseconds took, nanoseconds usual) noexcept {
  return took >= slow_sample_factor * usual && took - usual >= slow_sample_excess;
}

struct timed_sample {
  std::uint64_t index = 0;
  std::string name;
  nanoseconds took{0};
};

/// A worker's times. Pure; not thread-safe.
class sample_times {
 public:
  static constexpr std::size_t named_max = 3;                             ///< per batch
  static constexpr nanoseconds named_from = std::chrono::milliseconds(1);  ///< faster samples are never reported

  void note(std::uint64_t index, const std::string& name, nanoseconds took);

  struct of_batch {
    std::vector<timed_sample> slowest;  ///< the slowest first
    nanoseconds slow{0};                ///< by how much its slow samples together exceeded the usual time
    nanoseconds usual{0};               ///< how long a sample usually takes; 0: not computed, because none took long
  };
  /// The batch is complete. Returns what was noted since the last call. The usual time is the median of this worker's
  /// last samples.
  [[nodiscard]] of_batch take();

 private:
  static constexpr std::size_t recent_max = 64;

  std::deque<nanoseconds> recent_;  // includes earlier batches
  std::vector<nanoseconds> batch_;  // samples of this batch that may be slow
  std::vector<timed_sample> slowest_;
};

struct slow_sample {
  timed_sample sample;  ///< with its longest time
  std::uint32_t worker = 0;
  std::uint32_t times = 1;  ///< how many times it took at least half as long
  steady_time when{};       ///< when it last took that long
};

/// A batch of a data loader with slow samples, and the consumer's wait for it.
struct slow_load {
  std::uint64_t number = 0;  ///< 1, 2, 3, ... in one loader
  std::uint32_t worker = 0;
  timed_sample sample;  ///< the slowest one
  steady_time from{};   ///< the consumer's wait while it was loaded; empty: `from` equals `to`
  steady_time to{};
  double weight = 0;  ///< the slow samples' share of that wait
};

/// Thread-safe.
class slowest_samples {
 public:
  static constexpr std::size_t kept = 8;
  static constexpr nanoseconds memory = std::chrono::minutes(5);

  void note(const timed_sample& sample, std::uint32_t worker, steady_time now);
  /// The slow samples of the last minutes, the slowest first.
  [[nodiscard]] std::vector<slow_sample> at(steady_time now) const;

 private:
  mutable std::mutex mutex_;
  std::vector<slow_sample> samples_;
};

}  // namespace penstock
