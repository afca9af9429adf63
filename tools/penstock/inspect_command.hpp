// `penstock inspect FILE`: what a job's dataset consists of, and which of its files look like mistakes.
#pragma once

namespace penstock::cli {

class verb_table;
void add_inspect_command(verb_table& verbs);

}  // namespace penstock::cli
