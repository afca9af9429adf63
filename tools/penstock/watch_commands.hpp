// Verbs that watch a live session: events, describe, trace and top. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_watch_commands(verb_table& verbs);

}  // namespace penstock::cli
