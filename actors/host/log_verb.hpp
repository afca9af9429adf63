// The control socket's verb `logs`: the output of the session's processes, once or continuously.
#pragma once

#include "runtime/control/control_server.hpp"
#include "runtime/process/log_store.hpp"

namespace penstock::host {

/// {"target": "worker/3"|"gpu"|"workers"|"all", "previous": bool, "tail": N, "follow": bool, "after": {...}}
/// -> {"lines": [{"source", "incarnation", "number", "time", "text", "dropped"}], "seen": {...}}.
/// With follow and `after` (the `seen` of the previous answer), the answer waits for new lines or the end of
/// the session.
[[nodiscard]] control::answer answer_logs(const nlohmann::ordered_json& request, bool last_call,
                                          const process::log_store& book);

}  // namespace penstock::host
