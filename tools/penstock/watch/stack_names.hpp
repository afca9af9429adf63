// Names for the frames of a death record: "module+0x12ab" becomes "function at file:line" where addr2line is
// installed and the module still is the one that ran. Done when somebody reads, never by the session.
#pragma once

#include <string>
#include <vector>

namespace penstock::cli {

/// As many entries as frames; a frame without a name stays as it is.
[[nodiscard]] std::vector<std::string> name_frames(const std::vector<std::string>& frames);

}  // namespace penstock::cli
