// Verbs that operate a live session through its control socket: status, deaths, wait, stop, pause, resume,
// scale, restart, drain, sessions. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_session_commands(verb_table& verbs);

}  // namespace penstock::cli
