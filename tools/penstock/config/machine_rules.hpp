// What only this machine knows about a config: whether its slots fit in memory, and whether its data is here. Used by
// check-config.
#pragma once

#include "runtime/config/load.hpp"

#include <optional>

namespace penstock::cli {

/// An error at [loader] slot_bytes if so many slots of so many workers cannot be had here. Nothing where the size
/// is "auto": only the dataset tells it then (`penstock run --dry-run`).
[[nodiscard]] std::optional<config_file::diagnostic> slots_beyond_memory(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

/// A warning at [dataset] path if nothing is there: the file may be meant for another machine.
[[nodiscard]] std::optional<config_file::diagnostic> data_not_here(const config_file::loaded_config& loaded,
                                                                   const std::filesystem::path& file);

}  // namespace penstock::cli
