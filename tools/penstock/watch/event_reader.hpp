// Reads a session's events over its control socket, or from the record of an ended one. Used by events and
// trace.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <functional>

namespace penstock::cli {

/// Reads all events page by page; with `follow`, until the session ends. Returns the exit code.
int read_events(const session_choice& choice, const std::filesystem::path& socket, bool follow,
                const std::function<void(const nlohmann::ordered_json&)>& each);

}  // namespace penstock::cli
