// Describes how a group ended: as a table, and as a report (schema penstock.group/1). Used by `launch`.
#pragma once

#include "tools/penstock/launch/launch_run.hpp"
#include "tools/penstock/launch/session_ranks.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace penstock::cli {

/// "finished", "stopped", "failed".
[[nodiscard]] const char* name_of(launch_outcome outcome);
/// "rank 1 (pid 4711) ended: SIGKILL"; empty without a cause.
[[nodiscard]] std::string cause_sentence(const launch_result& r);
/// `sessions`: null if the ranks are programs; otherwise the ranks' own reports are read from its folder.
[[nodiscard]] nlohmann::ordered_json group_report(const launch_work& work, const launch_result& r,
                                                  const session_work* sessions);
/// `report`: group_report().
[[nodiscard]] std::string rank_table(const launch_work& work, const launch_result& r, const nlohmann::ordered_json& report,
                                     std::size_t width);
/// For each rank, a line for each epoch that has a digest.
[[nodiscard]] std::string digests_for_people(const nlohmann::ordered_json& report);

/// Adds what the session of the first cause reports, because an exit code says little. The first process to
/// exit may have learned of another rank's failure; that rank is then the cause.
void explain_cause(launch_result& r, const session_work& sessions);

}  // namespace penstock::cli
