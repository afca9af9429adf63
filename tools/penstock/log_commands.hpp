// `penstock logs`: what a live session's processes wrote to stdout and stderr. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_log_commands(verb_table& verbs);

}  // namespace penstock::cli
