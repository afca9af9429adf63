// Files with the state of a stream. Used by verbs that resume.
#pragma once

#include "runtime/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

/// The file's contents; nothing if there is no file. Refuses (errc::state_mismatch) a file that is empty or no saved
/// state, and (errc::io) what cannot be read.
[[nodiscard]] result<std::vector<std::byte>> read_state(const std::string& path);

/// The value of --state-every. Refuses (errc::usage) what is no duration, and one so short that nothing else would be done.
[[nodiscard]] result<std::chrono::milliseconds> parse_state_pace(const std::string& text);

}  // namespace penstock::cli
