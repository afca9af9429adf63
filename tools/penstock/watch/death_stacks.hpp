// The stacks of dead workers as text: `penstock deaths --stacks` and `describe`. Pure: JSON in, text out.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::cli {

/// Gives frames the names of their functions and lines; see name_frames(). Takes seconds for a large program.
using frame_namer = std::function<std::vector<std::string>(const std::vector<std::string>&)>;

/// Which frames to print: all, or the newest one and those of the user's code, with a count for each run of others. In Python, the others
/// are those of penstock's package, of imports and of the start of programs.
enum class frames_shown : std::uint8_t { of_user, all };

/// Whether a frame as the dying process wrote it belongs to penstock or to a library below it, such as libc.
[[nodiscard]] bool is_frame_below_user(const std::string& frame);

/// `deaths`: all_deaths(). Python's frames come first. Workers that died with the same stack share one. Calls `name` once, with every frame
/// once.
[[nodiscard]] std::string stacks_for_people(const nlohmann::ordered_json& deaths, const frame_namer& name, frames_shown which = frames_shown::all);
/// The distinct stacks of the deaths over one sample: [{"attempts": ["1", "2"], "lines"}].
[[nodiscard]] nlohmann::ordered_json stacks_by_attempt(const nlohmann::ordered_json& deaths, const frame_namer& name, frames_shown which);
/// The lines of one death's stack; empty if it wrote none.
[[nodiscard]] std::vector<std::string> stack_lines(const nlohmann::ordered_json& death, const frame_namer& name, frames_shown which);

}  // namespace penstock::cli
