// A group's status: a table with a line for each rank, and one with a line for each loader host. Pure: JSON in, text out. Used by status and top.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// `group`: {"group": NAME, "ranks": [{"rank": 0, "session": .., "status": the session's answer, or null}, ..]}.
[[nodiscard]] std::string group_for_people(const nlohmann::ordered_json& group, std::size_t width);

/// Whether every rank has answered, its state is ok, and its stream moves.
[[nodiscard]] bool all_well(const nlohmann::ordered_json& group);

}  // namespace penstock::cli
