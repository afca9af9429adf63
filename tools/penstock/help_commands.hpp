// help, completion and version: verbs about this program itself. Used by main.cpp, last.
#pragma once

namespace penstock::cli {

class verb_table;

void add_help_commands(verb_table& verbs);

}  // namespace penstock::cli
