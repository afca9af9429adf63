// Samples and jobs that hung: how often, when and in which worker. Shows an operator who
// restarts a hanging worker at once that the next one hangs at the same sample. Pure.
#pragma once

#include <penstock/report.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::supervision {

inline constexpr std::size_t hung_work_max = 64;  ///< kept for a run
inline constexpr std::size_t hangs_kept = 16;     ///< per sample or job
inline constexpr double hangs_from_seconds = 5;   ///< the same time after which a stall is reported (rule W15)

/// Whether the worker was killed because it hung: by the session, or by an operator once it had worked on something for 5 s.
[[nodiscard]] bool is_hang(const death_report& death);

/// Sets death.hung_before, and adds the death if it is a hang.
void note_hang(std::vector<hung_work>& known, death_report& death);

/// The worker's current work if it has hung before; null otherwise.
[[nodiscard]] const hung_work* earlier_hangs(const session_status& status, const worker_status& worker);

}  // namespace penstock::supervision
