// Files with the state of a stream. Used by verbs that resume.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::cli {

/// The file's contents; nothing if there is no file. Refuses (errc::state_mismatch) a file that is empty or no saved
/// state, and (errc::io) what cannot be read.
[[nodiscard]] result<std::vector<std::byte>> read_state(const std::string& path);

}  // namespace penstock::cli
