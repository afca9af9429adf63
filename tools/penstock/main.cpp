// penstock: the command line. Each verb lives in a file of its own and adds itself to the table of verbs.
#include "tools/penstock/bench_command.hpp"
#include "tools/penstock/chaos/chaos_command.hpp"
#include "tools/penstock/config_commands.hpp"
#include "tools/penstock/doctor_command.hpp"
#include "tools/penstock/help_commands.hpp"
#include "tools/penstock/inspect_command.hpp"
#include "tools/penstock/preview_command.hpp"
#include "tools/penstock/log_commands.hpp"
#include "tools/penstock/quarantine_commands.hpp"
#include "tools/penstock/run_command.hpp"
#include "tools/penstock/session_commands.hpp"
#include "tools/penstock/verb_table.hpp"
#include "tools/penstock/watch_commands.hpp"

int main(int argc, char** argv) {
  using namespace penstock::cli;
  verb_table verbs;
  // In the order in which help lists them.
  add_run_command(verbs);
  add_session_commands(verbs);
  add_watch_commands(verbs);
  add_log_commands(verbs);
  add_quarantine_commands(verbs);
  add_chaos_command(verbs);
  add_config_commands(verbs);
  add_preview_command(verbs);
  add_bench_command(verbs);
  add_doctor_command(verbs);
  add_inspect_command(verbs);
  add_help_commands(verbs);
  return verbs.run(argc, argv);
}
