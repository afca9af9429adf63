// What a launcher outside the session (`penstock launch`) knows about the ranks' processes, for the session's status and events.
// Called by `penstock run`, with what the launcher reports.
#pragma once

#include <penstock/report.hpp>

#include <vector>

namespace penstock {
class Session;
}

namespace penstock::session {

/// Call once if the launcher will report lost processes, before processes_lost().
void expect_lost_processes(const Session& session);
/// Call with the processes that the launcher has lost since the previous call, oldest first. Those of the session's own rank were
/// its predecessors.
void processes_lost(const Session& session, const std::vector<lost_process_report>& lost);

}  // namespace penstock::session
