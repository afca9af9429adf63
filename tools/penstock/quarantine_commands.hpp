// `penstock quarantine`: samples that kill workers, in a live session or in a quarantine file. Used by
// main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_quarantine_commands(verb_table& verbs);

}  // namespace penstock::cli
