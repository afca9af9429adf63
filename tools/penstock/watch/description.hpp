// What describe shows about one target of a live session. Pure: JSON in, JSON or text out.
#pragma once

#include "tools/penstock/targets.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// From the session's answer to "pipeline".
[[nodiscard]] nlohmann::ordered_json description_of(const nlohmann::ordered_json& pipeline,
                                                    const target& meant);
/// `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string description_for_people(const nlohmann::ordered_json& description,
                                                 std::size_t width);

}  // namespace penstock::cli
