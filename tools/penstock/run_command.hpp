// `penstock run FILE`: an embedding program like any other, that hands batches to a sink and reports. Used by
// main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_run_command(verb_table& verbs);

}  // namespace penstock::cli
