// Which rank of a launcher's a `penstock run` is, whether it joins the group, and which files are then its own.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/config/load.hpp"
#include "runtime/group/launcher_environment.hpp"

#include <optional>
#include <string>

namespace penstock::cli {

/// By [group] join and the environment of a launcher. Refuses (errc::config) a rank in the file that is not the
/// launcher's, and half an environment.
[[nodiscard]] result<bool> joins_group(const config_file::loaded_config& loaded);

/// The rank whose files these are: one of several that a launcher has started, each with a part of the stream. Nothing for
/// a session alone.
[[nodiscard]] std::optional<group::launcher_place> rank_of_files(const config_file::loaded_config& loaded,
                                                                 bool joins);
/// The same before a config is known: it could not be loaded.
[[nodiscard]] std::optional<group::launcher_place> rank_of_files();

/// What `run` writes; empty or "null": nothing.
struct run_files {
  std::string sink = "null";
  std::string out;
  std::string report;
};
[[nodiscard]] run_files files_of_rank(run_files given, const group::launcher_place& place);

}  // namespace penstock::cli
