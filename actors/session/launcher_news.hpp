// What a launcher outside the session (`penstock launch`) knows about the ranks' processes, for the session's status and events. Used by
// `run`, which hears it from the launcher.
#pragma once

#include <penstock/report.hpp>

#include <vector>

namespace penstock {
class Session;
}

namespace penstock::session {

/// The launcher will report lost processes. Call once, before processes_lost().
void expect_lost_processes(const Session& session);
/// Processes that the launcher has lost since the previous call, oldest first. Those of the session's own rank were its predecessors.
void processes_lost(const Session& session, const std::vector<lost_process_report>& lost);

}  // namespace penstock::session
