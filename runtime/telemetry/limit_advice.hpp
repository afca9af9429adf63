// Says in words what limits a stream, and which key to change. Used for `verdict` in status and for `penstock why`. Pure.
#pragma once

#include "runtime/base/slow_samples.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/telemetry/limit_reading.hpp"

#include <penstock/config.hpp>
#include <penstock/report.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::telemetry {

/// What the advice depends on besides the reading.
struct limit_context {
  std::uint32_t cores = 1;  ///< cores that this process may use
  std::uint32_t workers = 0;  ///< workers wanted now
  std::uint32_t slots_per_worker = 0;  ///< how many batches a worker may hold; in a pool, how many leases
  std::uint64_t restarts = 0;  ///< restarts of workers so far
  work_kind work = work_kind::samples;
  bool on_host = false;  ///< whether the device is the host device
  bool pinned = true;    ///< whether the device reads the slots by DMA
  std::optional<stall_report> stalled{};  ///< set if there is no progress now
  hedge_counts hedges{};                  ///< so far
  std::optional<std::int32_t> stalled_pid{};  ///< the process that the stream waits for
  std::optional<std::int32_t> owner_pid{};    ///< the GPU owner's process
  /// How the last process of the worker in limit_reading::lost ended: "ended: SIGSEGV"; empty: unknown.
  std::string lost_worker_end{};
  std::uint32_t hosts = 0;                ///< loader hosts that have joined
  std::uint32_t remote_resting = 0;  ///< workers that hosts offer but that an operator does not want to run
  std::vector<slow_sample> slowest{};     ///< slow samples of the last minutes, the slowest first
  std::map<std::uint32_t, std::string> loading{};  ///< by worker: the name of the sample that it is loading
  /// The sample that a data loader's worker has been loading for the longest time, if that is at least 1 s.
  struct long_load {
    std::uint32_t worker = 0;
    std::string name{};
    double seconds = 0;
  };
  std::optional<long_load> longest{};
  std::optional<nanoseconds> stalled_limit{};  ///< the time limit of the work that the stream waits for
  std::optional<hosts_wait> waits_for_hosts{};
  bool drained = false;                        ///< an operator drained all workers
  std::vector<std::string> over_memory{};          ///< a sentence about each worker that is over its memory limit
  steady_time now{};
};

struct limit_advice {
  std::optional<limit> what;      ///< empty: nothing limits it, or nothing was measured
  std::string key;                ///< config key to change first: "loader.workers"; empty: no key helps
  std::string sentence;           ///< one sentence
  std::vector<std::string> more;  ///< more lines, with figures and alternatives
  std::string hosts{};            ///< whether the stream needs its loader hosts; empty: it has none, or it waits
};
/// Once the first batch has been taken, the advice and its figures describe only the time after that.
[[nodiscard]] limit_advice advise(const limit_reading& whole, const limit_context& context,
                                  const config& settings);

/// For status.
[[nodiscard]] limits_status limits_of(const limit_reading& reading, const limit_advice& advice);
/// The answer to "why", schema penstock.why/1.
[[nodiscard]] nlohmann::ordered_json why_as_json(const limit_reading& reading, const limit_advice& advice, const limit_context& context = {});
/// The share of the time in which the consumer waited, as the sentence of the advice has it; null if nothing was measured.
[[nodiscard]] nlohmann::ordered_json waited_as_json(const limit_reading& reading);
/// The samples of limit_context::slowest that are slow (rule W32), for "why" and "describe".
[[nodiscard]] nlohmann::ordered_json slowest_as_json(const limit_reading& reading, const limit_context& context);

}  // namespace penstock::telemetry
