// Finds what the workers are doing, from their flight records and the kernel. Used on the io thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/worker_look.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <vector>

namespace penstock::host {

/// Leaves out the worker in `sacrificial_place`: it works on suspects only.
[[nodiscard]] std::vector<worker_look> look_at_workers(const session_status& status,
                                                       const arena::flight_recorders& flights,
                                                       std::uint32_t sacrificial_place);

}  // namespace penstock::host
