// Checks of a config that need more than its keys: whether its slots fit in this machine's memory, whether
// its data and its worker program are here, and whether its stream has batches. Used by check-config.
#pragma once

#include "runtime/config/load.hpp"

#include <optional>

namespace penstock::cli {

/// An error at [loader] slot_bytes if the slots of all workers do not fit in this machine's memory. Empty if
/// the size is "auto": it then depends on the dataset (`penstock run --dry-run`).
[[nodiscard]] std::optional<config_file::diagnostic> slots_beyond_memory(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

/// A warning at [loader] affinity if this process is not allowed to use one of its cores: the file may be meant for another machine.
[[nodiscard]] std::optional<config_file::diagnostic> cores_not_here(const config_file::loaded_config& loaded,
                                                                    const std::filesystem::path& file);

/// A warning at [dataset] path if nothing is there: the file may be meant for another machine.
[[nodiscard]] std::optional<config_file::diagnostic> data_not_here(const config_file::loaded_config& loaded,
                                                                   const std::filesystem::path& file);

/// A warning at the path of any dataset if it exists, but lacks what the dataset's type reads: no pictures, a missing shard.
[[nodiscard]] std::optional<config_file::diagnostic> data_not_usable(const config_file::loaded_config& loaded,
                                                                     const std::filesystem::path& file);

/// A warning at an entry of any dataset's [dataset.members] if none of the first samples has such a member. Reads them only if they are
/// files on this machine.
[[nodiscard]] std::optional<config_file::diagnostic> members_not_there(const config_file::loaded_config& loaded,
                                                                       const std::filesystem::path& file);

/// A warning at [loader] command if the worker program is not found: the file may be meant for another machine.
[[nodiscard]] std::optional<config_file::diagnostic> program_not_here(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

/// An error at [loader.hosts] listen or connect if nothing says who may join.
[[nodiscard]] std::optional<config_file::diagnostic> hosts_without_secret(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

/// An error at [loader.hosts] secret_file if a run refuses that file. A warning if it cannot be read here: the config may be meant for another
/// machine.
[[nodiscard]] std::optional<config_file::diagnostic> hosts_secret_not_here(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

/// An error at [sampler] if no rank ever has a batch. Empty if the number of samples is known only from the data; `penstock run` then
/// reports the error.
[[nodiscard]] std::optional<config_file::diagnostic> nothing_to_deliver(
    const config_file::loaded_config& loaded, const std::filesystem::path& file);

}  // namespace penstock::cli
