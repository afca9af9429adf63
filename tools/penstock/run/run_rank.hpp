// Decides which of a launcher's ranks a `penstock run` is, whether it joins the group, and which files belong
// to it.
#pragma once

#include "runtime/base/launcher_environment.hpp"
#include "runtime/base/result.hpp"
#include "runtime/config/load.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

/// Follows [group] join and the launcher's environment. Refuses (errc::config) a rank in the file that
/// differs from the launcher's, and an incomplete environment.
[[nodiscard]] result<bool> joins_group(const config_file::loaded_config& loaded);

/// The rank that these files belong to: one of several started by a launcher, each with a part of the stream.
/// Empty for a session alone.
[[nodiscard]] std::optional<launcher_place> rank_of_files(const config_file::loaded_config& loaded,
                                                          bool joins);
/// For a config that could not be loaded: uses only the launcher's environment.
[[nodiscard]] std::optional<launcher_place> rank_of_files();

/// The files that `run` writes; empty or "null": none.
struct run_files {
  std::string sink = "null";
  std::string out;
  std::string report;
};
[[nodiscard]] run_files files_of_rank(run_files given, const launcher_place& place);

/// Refuses (errc::usage) a --state that names another rank: the ranks cannot tell whether they share it or each has its own.
[[nodiscard]] result<void> check_state_path(const std::string& path, const launcher_place& place);

/// The absolute path of a file, for readers in other folders.
[[nodiscard]] std::string whole_path(const std::string& path);
/// By kind, for session_options::files: report, state, journal and batches.
[[nodiscard]] std::map<std::string, std::string> files_by_kind(const run_files& files, const std::vector<std::string>& states);

/// The notice for a run that starts at the beginning of the stream; empty unless its sink is a journal that already has batches.
[[nodiscard]] std::string notice_of_journal(const std::string& sink);

}  // namespace penstock::cli
