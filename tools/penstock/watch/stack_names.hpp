// Finds names for the frames of a death record: "module+0x12ab in function" becomes "function at file:line"
// if addr2line is installed and the module has line tables and has not changed. The reader does this, never
// the session.
#pragma once

#include <string>
#include <vector>

namespace penstock::cli {

/// One entry per frame; a frame without a name stays unchanged.
[[nodiscard]] std::vector<std::string> name_frames(const std::vector<std::string>& frames);

/// "abort.c:79 (discriminator 21)" without the number, which only tells a compiler's blocks of one line apart.
[[nodiscard]] std::string without_discriminator(const std::string& place);

}  // namespace penstock::cli
