// What describe shows about one target of a live session. Pure: JSON in, JSON or text out.
#pragma once

#include "tools/penstock/targets.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// Describes a target, from the session's answer to "pipeline".
[[nodiscard]] nlohmann::ordered_json description_of(const nlohmann::ordered_json& pipeline,
                                                    const target& meant);
/// Describes the loader hosts of this name, and their workers. `hosts` is empty if there is none.
[[nodiscard]] nlohmann::ordered_json description_of_host(const nlohmann::ordered_json& pipeline, const std::string& name);
/// The error "there is no host/x; available: host/alpha". `status`: the session's status.
[[nodiscard]] std::string no_such_host(const nlohmann::ordered_json& status, const std::string& name);
/// `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string description_for_people(const nlohmann::ordered_json& description,
                                                 std::size_t width);

}  // namespace penstock::cli
