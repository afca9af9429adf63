// What limited a stream during the last 10 s, as a struct. Made by stream_limits; read by the
// advice, status and the metrics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::telemetry {

/// The causes of a wait: see stream_limits.hpp.
enum class limit : std::uint8_t { storage, decode, order, wire, convert, consumer, start };
inline constexpr std::size_t limit_count = 7;
/// "storage", ...
[[nodiscard]] std::string_view name_of(limit l) noexcept;

/// A reading covers the last 10 s, or the time since the first demand if that is shorter.
struct limit_reading {
  double seconds = 0;  ///< length of the time that the reading covers
  std::array<double, limit_count> share{};
  double beginning = 0;  ///< share of the time before the first batch (in a pool, before the first job ended)
  /// The part of `share` that belongs to the beginning.
  std::array<double, limit_count> share_of_beginning{};
  /// Total time so far, including the wait in progress, in which the stream waited for
  /// batches that a worker held when it died, and for dead owners. Empty for a pool, unless it loads batches.
  std::optional<double> lost_seconds{};
  std::uint64_t slow_batches = 0;  ///< total number of batches with slow samples so far
  double slow_seconds = 0;         ///< total time so far, without the wait in progress, that the stream waited for slow samples

  // Figures for the advice.
  std::uint32_t workers = 0;  ///< workers that are ready now
  double busy = 0;            ///< share of the workers' time spent on work
  double cpu = 0;             ///< share of a worker's time that its thread spent on a core
  double core_wait = 0;       ///< share of a worker's time spent waiting for a core
  double start_core_wait = 0;  ///< share of a starting worker's time spent waiting for a core
  double batches_per_second = 0;
  double samples_a_batch = 0;
  std::uint32_t remote = 0;  ///< how many of `workers` are on loader hosts
  double working = 0;        ///< average number of busy workers
  double link = 0;           ///< share of the time spent waiting for batches on their way from loader hosts; part of `wire`
  /// Share of the time that the consumer asked for a batch although it held every device buffer
  /// (in a pool: all memory).
  double held = 0;
  /// Share of the time that all workers were idle because the consumer asked for nothing.
  double spare = 0;
  double owner_frozen = 0;  ///< share of the time that the owner's process was suspended
  double owner_down = 0;    ///< share of the time that the owner was being replaced
  struct stalled_head {
    std::uint32_t worker = 0;
    double seconds = 0;
    /// The batch's slowest sample; empty: unknown, or the sample that the worker is loading now.
    std::optional<std::uint64_t> sample{};
    bool is_loading = false;                ///< the batch is still being loaded
  };
  std::optional<stalled_head> stall;  ///< the longest stall, if stalls are most of `order`
  struct awaited_sample {
    std::uint32_t worker = 0;
    double seconds = 0;                     ///< how long it took, or has taken so far
    std::optional<std::uint64_t> sample{};  ///< empty: the sample that the worker is loading now
    std::string name{};                     ///< empty: limit_context may have the name
  };
  double slow_share = 0;                      ///< share of the time that the stream waited for slow samples; part of other shares
  std::vector<awaited_sample> slow_samples;  ///< the slowest of these samples, the slowest first
  double no_core = 0;                         ///< share of the time that the next batch's worker waited for a core; part of `decode`
  struct slow_worker {
    std::uint32_t worker = 0;
    double factor = 1;     ///< the worker's time for a sample, divided by its peers' time
    /// Share of the worker's time spent waiting for a core, if this makes the worker slow.
    double core_wait = 0;
  };
  std::optional<slow_worker> slow;
  struct lost_batch {
    std::uint32_t worker = 0;
    /// Share of the time that the stream waited for batches that this worker held when it died.
    double share = 0;
  };
  std::optional<lost_batch> lost;  ///< the worker whose death cost the most time
  struct worker_load {
    std::uint32_t worker = 0;
    double seconds_a_sample = 0;  ///< median of its last batches, without slow samples
    /// Share of that time spent in reads, from memory or storage, not counting waits for a core;
    /// median of the same batches.
    double reading = 0;
  };
  std::vector<worker_load> loads;  ///< for each worker that is ready and has loaded a batch

  /// Share of the workers' time spent on work, but neither on a core nor waiting for one.
  [[nodiscard]] double blocked() const noexcept { return busy > cpu + core_wait ? busy - cpu - core_wait : 0; }
  [[nodiscard]] double of(limit l) const noexcept { return share[static_cast<std::size_t>(l)]; }
  /// Share of the time that the consumer spent waiting.
  [[nodiscard]] double waited() const noexcept;
  /// Whether the consumer takes batches in bursts: between bursts, it left all workers idle for longer than
  /// it waited during the bursts.
  [[nodiscard]] bool in_bursts() const noexcept;
  /// What to change first: the largest cause of waits if the waits matter, otherwise the consumer. Empty if nothing
  /// was measured.
  [[nodiscard]] std::optional<limit> largest() const noexcept;
  /// The reading without the beginning of the run: in a short run, the beginning hides what limits the rest.
  /// Empty if there is no beginning, or if it took most of the time.
  [[nodiscard]] std::optional<limit_reading> after_beginning() const;
};

}  // namespace penstock::telemetry
