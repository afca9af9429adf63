// Files with the state of a stream. Used by verbs that resume.
#pragma once

#include "runtime/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

/// The file's contents; empty if there is no file. Refuses (errc::state_mismatch) an empty file and one
/// without a saved state; fails (errc::io) if the file cannot be read.
[[nodiscard]] result<std::vector<std::byte>> read_state(const std::string& path);

/// Parses --state-every. Refuses (errc::usage) text that is not a duration, and a duration so short that the
/// run would only write states.
[[nodiscard]] result<std::chrono::milliseconds> parse_state_pace(const std::string& text);

}  // namespace penstock::cli
