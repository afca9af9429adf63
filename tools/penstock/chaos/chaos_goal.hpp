// The goal of `penstock chaos` in words, and the estimated time until it is reached.
#pragma once

#include "tools/penstock/chaos/fault_injector.hpp"

#include <cstdint>
#include <string>

namespace penstock::cli {

/// "100 faults, 2 a second on average; seed 7".
[[nodiscard]] std::string goal_of(const fault_injector_settings& n);
/// The estimated time left, from the time that the faults so far have taken; empty below a second.
[[nodiscard]] std::string time_left_of(const fault_injector_settings& n, std::uint64_t faults, nanoseconds under_fire);

}  // namespace penstock::cli
