// check-config and schema: verbs about config files. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_config_commands(verb_table& verbs);

}  // namespace penstock::cli
