// `penstock chaos FILE`: the stream of a config file undisturbed, then under a nemesis; and whether the two
// are the same. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_chaos_command(verb_table& verbs);

}  // namespace penstock::cli
