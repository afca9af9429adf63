// The stacks of dead workers as text: `penstock deaths --stacks`. Pure: JSON in, text out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <vector>

namespace penstock::cli {

/// Gives frames the names of their functions and lines; see name_frames(). Takes seconds for a large program.
using frame_namer = std::function<std::vector<std::string>(const std::vector<std::string>&)>;

/// `deaths`: all_deaths(). Python's frames come first. Workers that died with the same stack share one. Calls `name` once, with every frame
/// once.
[[nodiscard]] std::string stacks_for_people(const nlohmann::ordered_json& deaths, const frame_namer& name);

}  // namespace penstock::cli
