// penstock preview: a batch as pictures. Used by main.cpp.
#pragma once

namespace penstock::cli {

class verb_table;

void add_preview_command(verb_table& verbs);

}  // namespace penstock::cli
