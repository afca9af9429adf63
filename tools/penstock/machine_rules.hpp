// The contradiction that only this machine knows: slots of a given size that do not fit in its memory. Used by
// check-config.
#pragma once

#include "runtime/config/load.hpp"

#include <optional>

namespace penstock::cli {

/// An error at [loader] slot_bytes if so many slots of so many workers cannot be had here. Nothing where the size
/// is "auto": only the dataset tells it then (`penstock run --dry-run`).
[[nodiscard]] std::optional<config_file::diagnostic> slots_beyond_memory(const config_file::loaded_config& loaded,
                                                                         const std::filesystem::path& file);

}  // namespace penstock::cli
