// Samples and jobs that hung: how often, when and in which worker. If an operator restarts a hanging worker
// at once, this shows that the next worker hangs at the same sample. Pure.
#pragma once

#include "runtime/base/work_kind.hpp"

#include <penstock/report.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervision {

inline constexpr std::size_t hung_work_max = 64;  ///< the most samples or jobs recorded in a run
inline constexpr std::size_t hangs_kept = 16;     ///< records per sample or job
/// If an operator kills a worker after this much work on something, it counts as hung; a stall is reported
/// after the same time (rule W15).
inline constexpr double hangs_from_seconds = 5;

/// Whether the worker was killed because it hung: by the session, or by an operator once it had worked on something for 5 s.
[[nodiscard]] bool is_hang(const death_report& death);

/// Sets death.hung_before, and adds the death if it is a hang.
void note_hang(std::vector<hung_work>& known, death_report& death, work_kind kind);

/// The worker's current work if it has hung before; null otherwise.
[[nodiscard]] const hung_work* earlier_hangs(const session_status& status, const worker_status& worker);

}  // namespace penstock::supervision
