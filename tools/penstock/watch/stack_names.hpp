// Finds names for the frames of a death record: "module+0x12ab in function" becomes "function at file:line"
// if addr2line is installed and the module has line tables and has not changed. The reader does this, never
// the session.
#pragma once

#include <string>
#include <vector>

namespace penstock::cli {

/// One entry per frame; a frame without a name stays unchanged.
[[nodiscard]] std::vector<std::string> name_frames(const std::vector<std::string>& frames);

}  // namespace penstock::cli
