// Adds the verbs to the table: one function for each file with verbs. main.cpp calls them in the order in
// which help lists the verbs; a new verb needs a line here, a line there, and a file next to its feature.
#pragma once

namespace penstock::cli {

class verb_table;

void add_run_command(verb_table& verbs);
void add_map_command(verb_table& verbs);
void add_launch_command(verb_table& verbs);
void add_host_command(verb_table& verbs);
void add_secret_command(verb_table& verbs);
void add_status_commands(verb_table& verbs);      // status, deaths, sessions
void add_control_commands(verb_table& verbs);     // wait, restart, drain, scale, pause, resume, stop
void add_wait_command(verb_table& verbs);         // called by add_control_commands()
void add_metrics_command(verb_table& verbs);
void add_watch_commands(verb_table& verbs);       // top, describe, events, trace
void add_trace_command(verb_table& verbs);        // called by add_watch_commands()
void add_why_command(verb_table& verbs);
void add_log_commands(verb_table& verbs);         // logs
void add_quarantine_commands(verb_table& verbs);  // quarantine
void add_chaos_command(verb_table& verbs);
void add_config_commands(verb_table& verbs);  // check-config, schema
void add_pack_command(verb_table& verbs);
void add_plan_command(verb_table& verbs);
void add_replay_command(verb_table& verbs);
void add_preview_command(verb_table& verbs);
void add_sample_photos_command(verb_table& verbs);
void add_bench_command(verb_table& verbs);
void add_headroom_command(verb_table& verbs);
void add_doctor_command(verb_table& verbs);
void add_inspect_command(verb_table& verbs);
void add_help_commands(verb_table& verbs);  // help, completion, version

}  // namespace penstock::cli
