// The client side of the control socket: one request, one answer, with a deadline. Used by the CLI.
#pragma once

#include "runtime/base/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <filesystem>
#include <optional>

namespace penstock::control {

/// Sends a request (the protocol version is added) and waits for the answer. Refuses with errc::io if there
/// is no session or it ends meanwhile, errc::timed_out, or errc::protocol for an answer that is not one JSON
/// object.
result<nlohmann::ordered_json> ask(const std::filesystem::path& socket, nlohmann::ordered_json request,
                                   std::optional<std::chrono::milliseconds> deadline);

}  // namespace penstock::control
