// The state of a running session in more detail than the board has it, for `penstock top`, `trace` and the
// metrics. Pure functions of copies; used on the io thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/batch_times.hpp"
#include "runtime/supervision/awaited.hpp"

#include <penstock/report.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace penstock::host {

/// Updates the workers' state from their flight recorders; the board has it only as of the supervisor's last
/// poll. `under_way`: batch_times::under_way(), for a stream.
[[nodiscard]] session_status look_closer(session_status status, const arena::flight_recorders& flights, steady_time now,
                                         const std::vector<batch_passage>& under_way = {});

/// Adds each worker's `rate` to the workers of a status: board::worker_rates().
void add_rates(nlohmann::ordered_json& workers, const std::map<std::uint32_t, double>& rates);

/// Whether a data loader has left samples out of its batches.
[[nodiscard]] bool has_left_out(const session_status& status);
/// How many samples earlier runs have quarantined. A data loader's `quarantined` does not count these.
[[nodiscard]] std::size_t quarantined_before(const std::vector<quarantine_report>& all);

/// How many workers an operator has drained, or 0 if any other worker is left.
[[nodiscard]] std::size_t workers_drained(const session_status& status);

/// The answer to "pipeline": where batches are and what they wait for.
[[nodiscard]] nlohmann::ordered_json pipeline_as_json(const supervision::progress_facts& facts,
                                                      double waited_seconds, steady_time now);

/// The answer to "trace": the batches released after number `after`, with their timestamps in nanoseconds.
[[nodiscard]] nlohmann::ordered_json passages_as_json(const batch_times& times, std::uint64_t after,
                                                      std::size_t limit, steady_time now);

}  // namespace penstock::host
