// Finds what the workers are doing, from their flight records and the kernel. Used on the io thread.
#pragma once

#include "runtime/arena/flight_recorder.hpp"
#include "runtime/base/worker_look.hpp"

#include <penstock/report.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace penstock::host {

/// Workers on this machine, without the one in `sacrificial_place`, which works only on suspects.
[[nodiscard]] std::vector<worker_look> look_at_workers(const session_status& status,
                                                       const arena::flight_recorders& flights,
                                                       std::uint32_t sacrificial_place);
/// Workers on other machines, in the places after `sacrificial_place`. This kernel does not know their times; `times_of` does,
/// and returns none for a worker that is gone.
using remote_times_of = std::function<std::optional<remote_times>(std::uint32_t worker)>;
[[nodiscard]] std::vector<worker_look> look_at_remote_workers(const session_status& status, const arena::flight_recorders& flights,
                                                              std::uint32_t sacrificial_place, const remote_times_of& times_of);

}  // namespace penstock::host
