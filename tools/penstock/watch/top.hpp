// penstock top: a live full-screen view of a session, on any terminal with ANSI sequences. Used by
// watch_commands.
#pragma once

#include "tools/penstock/session_link.hpp"

#include <string>

namespace penstock::cli {

struct top_options {
  session_choice choice;
  std::string every = "500ms";
  bool once = false;
};
int top(const top_options& o);

}  // namespace penstock::cli
