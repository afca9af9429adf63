// wait --group: until all ranks of a group that live here are ready or have finished. Used by wait.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace penstock::cli {

/// Returns the exit code. Ranks that appear meanwhile are waited for, too: while one is not ready, others may still be arriving.
int wait_for_group(const session_choice& choice, const live_group& group, const std::string& what,
                   std::optional<std::chrono::milliseconds> deadline);

}  // namespace penstock::cli
