// How the workers of a run spend their time, and how long each needs for a sample. Measured by polling
// the workers, and from the batches that the consumer has taken. Used by stream_limits, which
// attributes waits to causes. Pure.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/worker_look.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace penstock::telemetry {

[[nodiscard]] constexpr double seconds_of(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}
/// How many seconds the batch took per sample, without `left_out` nanoseconds of its loading time.
[[nodiscard]] double seconds_a_sample(const batch_passage& b, std::int64_t left_out = 0);
[[nodiscard]] double median(std::vector<double> values);

/// Times are nanoseconds of the steady clock, and do not decrease from call to call. Not thread-safe.
class worker_measures {
 public:
  /// The time that time() and idle_share() cover.
  static constexpr nanoseconds span = std::chrono::seconds(10);

  struct circumstances {
    bool is_paused = false;
    bool owner_is_away = false;
  };
  /// Takes the current state of the workers. `before`: the time of the previous call; 0: none.
  void look(std::int64_t now, std::int64_t before, const std::vector<worker_look>& workers, circumstances with);
  /// The consumer has taken this batch, which its worker has loaded. Returns whether the worker itself
  /// causes its slow samples.
  bool loaded(const batch_passage& b);
  /// The consumer has waited from `from` to `to`.
  void consumer_waited(std::int64_t from, std::int64_t to);
  /// Call it if this process was suspended: drops the times measured so far, because they say
  /// nothing about the workers.
  void forget_times();

  // ---- one worker ----

  /// Shares of the worker's busy time in the last second.
  struct core_use {
    double running = 0;
    double starved = 0;  ///< share of that time spent waiting for a core
  };
  [[nodiscard]] core_use core_use_of(std::uint32_t worker) const;
  /// Share of the last second, busy or not, that the worker spent waiting for a core.
  [[nodiscard]] double starved(std::uint32_t worker) const;
  /// The share of the worker's time spent in reads, without waits for a core after a read. `reading`:
  /// the same with these waits.
  [[nodiscard]] double without_core_wait(std::uint32_t worker, double reading) const;
  /// Whether the worker was reading at the last look.
  [[nodiscard]] bool was_reading(std::uint32_t worker) const;
  /// Whether the worker's batches take longer to arrive from a loader host than to load.
  [[nodiscard]] bool is_held_up_by_link(std::uint32_t worker) const;

  /// Medians over the worker's last batches.
  struct pace {
    double seconds_a_sample = 0;
    double reading = 0;  ///< share of that time spent in reads
    std::size_t batches = 0;
  };
  /// Empty if the worker has loaded no batch.
  [[nodiscard]] std::optional<pace> pace_of(std::uint32_t worker) const;
  /// The worker's time for a sample, divided by its peers' time. Empty if the worker or its peers
  /// have loaded too few batches.
  [[nodiscard]] std::optional<double> slowness_of(std::uint32_t worker) const;
  /// Whether the worker itself causes its slow samples. If the samples were the cause, they would be slow on
  /// its peers, too, or in each epoch.
  [[nodiscard]] bool slows_all_samples(std::uint32_t worker) const;

  // ---- all workers ----

  /// For each of the last batches: how many seconds it took per sample, without slow samples.
  [[nodiscard]] std::vector<double> loads() const;
  /// The idle share of the workers' time while the consumer waited; 0 if it is small. Workers also idle when all slots
  /// are full because the consumer asks for nothing, but that delays no batch.
  [[nodiscard]] double idle_share() const;
  /// How many seconds since `first` all workers were idle because the consumer asked for nothing.
  /// `waits_from`: when the wait in progress began; 0 if the consumer is not waiting.
  [[nodiscard]] double spare_seconds(std::int64_t first, std::int64_t waits_from) const;
  /// Sums over the workers, in seconds.
  struct time_spent {
    double ready = 0;
    double busy = 0;  ///< this and the next two count only while the worker is ready
    double cpu = 0;
    double core_wait = 0;
    double starting = 0;
    double start_core_wait = 0;
  };
  [[nodiscard]] time_spent time() const;
  /// How many entries a look and these queries go through: bounded, whatever happens.
  [[nodiscard]] std::size_t entries() const noexcept { return work_.size() + times_.size(); }

 private:
  struct load {
    double with_slow = 0;           // seconds per sample
    double without_slow = 0;        // the same, without the extra time of slow samples
    std::uint64_t slow_sample = 0;  // the slowest sample, if the two times differ
  };
  struct memory {
    std::uint32_t incarnation = 0;
    nanoseconds cpu{0};
    nanoseconds core_wait{0};
    nanoseconds received{0};
    double starved = 0;    // share of the last second spent waiting for a core
    double running = 0;    // share of the last second spent on a core
    double receiving = 0;  // share of the last second that its batches were on their way
    double working = 0;    // share of the last second that it worked
    bool reads = false;    // whether it was reading at the last look
    std::deque<load> loads;       // its last batches
    double usual = 0;             // their median
    std::deque<double> readings;  // share of the time spent in reads, for the same batches
    double reading = 0;           // their median
  };
  /// The workers' time between two looks.
  struct work_seen {
    std::int64_t at = 0;
    double seconds = 0;
    double ready = 0;  // seconds that workers were ready, summed over the workers
    double busy = 0;
    bool waited = false;  // whether the consumer waited
  };

  [[nodiscard]] const memory* find(std::uint32_t worker) const;
  static std::vector<std::uint64_t> slow_samples_of(const memory& worker);

  std::map<std::uint32_t, memory> workers_;
  std::deque<work_seen> work_;
  std::map<std::int64_t, time_spent> times_;  // by time, in tenths of a second
  std::int64_t looked_ = 0;
};

}  // namespace penstock::telemetry
