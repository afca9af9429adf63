// The control socket's verb `logs`: what the session's processes wrote, once or as it comes.
#pragma once

#include "runtime/control/control_server.hpp"
#include "runtime/process/log_book.hpp"

namespace penstock::session {

/// {"target": "worker/3"|"gpu"|"workers"|"all", "previous": bool, "tail": N, "follow": bool, "after": {...}}
/// -> {"lines": [{"source", "incarnation", "number", "time", "text", "dropped"}], "seen": {...}}. With follow
/// and `after` (the `seen` of the answer before) it is answered when there is something new, or at the end.
[[nodiscard]] control::answer answer_logs(const nlohmann::ordered_json& request, bool last_call,
                                          const process::log_book& book);

}  // namespace penstock::session
