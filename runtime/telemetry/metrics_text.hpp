// A session's metrics in Prometheus's text format 0.0.4. docs/metrics.md documents them; names and units are
// stable. Pure; used by the metrics endpoint of a session.
#pragma once

#include "runtime/base/batch_times.hpp"
#include "runtime/telemetry/limit_reading.hpp"

#include <penstock/report.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::telemetry {

/// The number of batches in each stage now.
struct pipeline_counts {
  std::uint64_t loading = 0;    ///< leased to a worker
  std::uint64_t loaded = 0;     ///< finished, waiting for an earlier batch or for a device buffer
  std::uint64_t uploading = 0;  ///< being copied or converted
  std::uint64_t ready = 0;      ///< on the device, waiting for the consumer
  std::uint64_t in_use = 0;     ///< held by the consumer
};
[[nodiscard]] pipeline_counts count_pipeline(const std::vector<batch_passage>& under_way);

inline constexpr std::size_t death_causes = static_cast<std::size_t>(death_cause::unknown) + 1;

struct metrics_facts {
  session_status status;
  run_report totals;                                       ///< without its epochs
  std::array<std::uint64_t, death_causes> deaths{};        ///< deaths of workers, by death_cause
  std::array<std::uint64_t, death_causes> owner_deaths{};  ///< deaths of the GPU owner's processes, by death_cause
  std::vector<batch_passage> under_way;
  std::vector<stage_histogram> stages;  ///< one for each span of stage_spans()
  limit_reading limits;
  std::string id{};  ///< id of the session's record; unique
};
[[nodiscard]] std::string metrics_text(const metrics_facts& facts, const std::string& version);

}  // namespace penstock::telemetry
