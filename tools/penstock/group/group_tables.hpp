// A group's status: a table with a line for each rank, and one with a line for each loader host. Pure: JSON in, text out. Used by status and top.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// `group`: {"group": NAME, "ranks": [{"rank": 0, "session": .., "status": the session's answer, or null}, ..]}.
[[nodiscard]] std::string group_for_people(const nlohmann::ordered_json& group, std::size_t width);

/// "rank 1 (pid 4711): SIGSEGV", from `lost` in a rank's group status.
[[nodiscard]] std::string lost_process_in_words(const nlohmann::ordered_json& lost);

/// Whether every rank has answered, its state is ok, and its stream moves.
[[nodiscard]] bool all_well(const nlohmann::ordered_json& group);

}  // namespace penstock::cli
