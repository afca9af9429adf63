// Whether a dataset's files are what its type needs, without reading them all. Used by check-config.
#pragma once

#include <penstock/config.hpp>

#include <optional>
#include <string>

namespace penstock::cli {

/// What a run would refuse about the files of [dataset]: what was found, and what was expected. Empty: nothing, or only reading more would
/// show it. Looks at names, of arrays and token files also at their heads; of a folder of pictures only until it finds the first one. Does not
/// ask servers.
[[nodiscard]] std::optional<std::string> trouble_with_files(const config& settings);

}  // namespace penstock::cli
