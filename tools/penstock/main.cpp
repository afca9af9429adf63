// penstock: the command line. Each verb adds itself to the table of verbs.
#include "tools/penstock/commands.hpp"
#include "tools/penstock/verb_table.hpp"

int main(int argc, char** argv) {
  using namespace penstock::cli;
  verb_table verbs;
  // The verbs, in the order in which help lists them.
  add_run_command(verbs);
  add_map_command(verbs);
  add_launch_command(verbs);
  add_host_command(verbs);
  add_secret_command(verbs);
  add_status_commands(verbs);
  add_control_commands(verbs);
  add_why_command(verbs);
  add_metrics_command(verbs);
  add_watch_commands(verbs);
  add_log_commands(verbs);
  add_quarantine_commands(verbs);
  add_chaos_command(verbs);
  add_config_commands(verbs);
  add_pack_command(verbs);
  add_plan_command(verbs);
  add_replay_command(verbs);
  add_preview_command(verbs);
  add_sample_photos_command(verbs);
  add_bench_command(verbs);
  add_headroom_command(verbs);
  add_doctor_command(verbs);
  add_inspect_command(verbs);
  add_help_commands(verbs);
  return verbs.run(argc, argv);
}
