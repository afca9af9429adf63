// wait --group: waits until all live ranks of a group on this host are ready or have finished. Used by wait.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace penstock::cli {

/// Returns the exit code. Also waits for ranks that appear meanwhile: while one rank is not ready, others may
/// still arrive.
int wait_for_group(const session_choice& choice, const live_group& group, const std::string& what,
                   std::optional<std::chrono::milliseconds> deadline);

}  // namespace penstock::cli
