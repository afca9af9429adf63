// The verbs that attach to a live session through its control socket.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace penstock::cli {

/// status, wait, stop, pause, resume, scale, restart, drain, deaths, sessions.
void add_session_commands(CLI::App& app, std::function<int()>& chosen);

}  // namespace penstock::cli
