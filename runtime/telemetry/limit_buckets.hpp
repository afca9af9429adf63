// The time of a stream's last 10 s by limit, in buckets of 100 ms. stream_limits decides which limit a wait
// belongs to. This class adds the waits up, leaves out pauses, and counts outages of the owner as `start`.
// Times are nanoseconds of the steady clock. Pure.
#pragma once

#include "runtime/telemetry/limit_reading.hpp"
#include "runtime/telemetry/worker_measures.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace penstock::telemetry {

/// Not thread-safe.
class limit_buckets {
 public:
  static constexpr nanoseconds span = worker_measures::span;
  static constexpr nanoseconds kept = 2 * span;  ///< a wait that is older than this is no longer added

  struct interval {
    std::int64_t from = 0;
    std::int64_t to = 0;
  };

  /// Begins a look: drops entries that are too old, and the estimates of the last look. `taken`: when the
  /// consumer took its last batch.
  void turn_to(std::int64_t now, std::int64_t taken);
  /// Time before `now` no longer counts.
  void forget_until(std::int64_t now);
  /// Whether everything added from now on is an estimate, which lasts only until the next look.
  void estimate(bool is_estimate) noexcept { into_ = is_estimate ? &estimated_ : &settled_; }
  /// The first batch has been taken; in a pool, the first job has ended. Only the first call counts.
  void end_beginning(std::int64_t when) noexcept { began_ = began_ == 0 ? when : began_; }

  /// The session was paused: this time belongs to no limit.
  void pause(const interval& when);
  /// The owner could not work, because its process was suspended (`frozen`) or was being replaced.
  void outage(const interval& when, bool frozen);
  /// The seconds of this interval without pauses. Counts the whole interval, even if it
  /// is older than the buckets.
  [[nodiscard]] double unpaused_seconds(interval when) const;

  void add(limit what, std::int64_t from, std::int64_t to, double weight = 1);
  /// Adds time during which the consumer asked for a batch while it held every buffer.
  void add_held(std::int64_t from, std::int64_t to);
  /// Adds time during which the batch was on its way from a loader host.
  void add_link(std::int64_t from, std::int64_t to);
  /// Adds the part of the head's loading time that counts as a stall. `starved`: the share of it that the
  /// worker spent without a core, which is not the head's fault.
  void add_stall(const limit_reading::stalled_head& head, double starved, std::int64_t from, std::int64_t to);
  /// Adds the part (`weight`) of this time that the head's worker spent without a core.
  void add_no_core(double weight, std::int64_t from, std::int64_t to);
  /// Adds the part (`weight`) of this time that the head's worker spent on slow samples.
  /// Counts towards no limit.
  void add_slow(const limit_reading::awaited_sample& sample, double weight, std::int64_t from, std::int64_t to);
  /// Adds time that the death of this worker has cost. Counts towards no limit.
  void add_lost(std::uint32_t worker, std::int64_t from, std::int64_t to);
  void note_slow(const limit_reading::slow_worker& worker, std::int64_t when) { at(when).slow = worker; }
  void note_batch(std::uint32_t samples, std::int64_t when);

  /// When the window of read() begins. `begun`: the time of the first demand.
  [[nodiscard]] std::int64_t window_from(std::int64_t now, std::int64_t begun) const;
  /// The reading without the figures about workers. `slow` is the worker that was noted last.
  [[nodiscard]] limit_reading read(std::int64_t now, std::int64_t begun) const;
  [[nodiscard]] std::size_t entries() const noexcept { return settled_.size() + estimated_.size() + outages_.size(); }

 private:
  struct bucket {
    std::array<double, limit_count> seconds{};
    std::array<double, limit_count> of_beginning{};
    std::uint64_t batches = 0;
    std::uint64_t samples = 0;
    double held = 0;
    double owner_frozen = 0;
    double owner_down = 0;
    double stalled = 0;
    double link = 0;
    double slow_seconds = 0;
    double no_core = 0;
    std::vector<limit_reading::awaited_sample> slow_samples;
    std::optional<limit_reading::stalled_head> stall;
    std::optional<limit_reading::slow_worker> slow;
    std::map<std::uint32_t, double> lost;  // seconds by worker
  };
  using buckets = std::map<std::int64_t, bucket>;  // by time

  [[nodiscard]] bucket& at(std::int64_t ns);
  template <class Act>
  void spread(std::int64_t from, std::int64_t to, Act act) const;
  void add_to(double bucket::*figure, std::int64_t from, std::int64_t to, double weight = 1);
  /// Whether a finished wait for the first batch is being added. Its causes belong to the beginning, and
  /// after_beginning() could not separate them later.
  [[nodiscard]] bool is_settling_the_first() const noexcept { return began_ == 0 && into_ == &settled_; }

  buckets settled_;    // for finished waits
  buckets estimated_;  // for the wait in progress; rebuilt at each look
  buckets* into_ = &settled_;
  std::deque<interval> outages_;
  std::deque<interval> pauses_;
  std::int64_t began_ = 0;  // when the beginning ended; 0: it has not
  std::int64_t counted_from_ = 0;
  std::int64_t oldest_ = 0;  // times before this are no longer added
  double slow_seconds_ = 0;  // limit_reading::slow_seconds
};

}  // namespace penstock::telemetry
