// Whether a dataset's files are what its type needs, without reading them all. Used by check-config.
#pragma once

#include <penstock/config.hpp>

#include <optional>
#include <string>

namespace penstock::cli {

/// Why a run would refuse the files of [dataset]: what was found, and what was expected. Empty if nothing is wrong, or if only reading more
/// would show it. Checks names, and the headers of arrays and token files; in a folder of pictures it stops at the first one. Does not ask
/// servers.
[[nodiscard]] std::optional<std::string> trouble_with_files(const config& settings);

}  // namespace penstock::cli
