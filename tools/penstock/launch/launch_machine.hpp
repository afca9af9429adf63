// This machine's resources for ranks: cores, GPUs, a port, random names. Used by launch.
#pragma once

#include "runtime/base/result.hpp"
#include "tools/penstock/launch/launch_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cli {

/// Queried in a separate process: CUDA in this one would leave a context, or hang with the driver.
[[nodiscard]] result<std::vector<launch_gpu>> visible_gpus();
/// A port that is free now. Another process may take it before the ranks' program does, as with every
/// launcher.
[[nodiscard]] result<std::uint16_t> free_port();
/// This many random bytes from the kernel, as hexadecimal digits.
[[nodiscard]] result<std::string> random_text(std::size_t bytes);
/// Sets the address at which the ranks meet, and their common secret.
[[nodiscard]] result<void> add_meeting_place(launch_names& names);

}  // namespace penstock::cli
