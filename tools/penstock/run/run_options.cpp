#include "tools/penstock/run/run_options.hpp"

#include "tools/penstock/number_option.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace penstock::cli {

void add_run_options(CLI::App& verb, run_options& o) {
  add_stream_options(verb, o.source);
  add_config_shorthands(verb, o.source);
  takes_whole_number(
      verb.add_option("--batches", o.batches, "stop after N batches, counted over all epochs"),
      {1, count_max});
  verb.add_flag("--digest", o.digest, "read every batch back from the device and hash it");
  verb.add_option("--sink", o.files.sink,
                   "where batches go: null, npy, journal:PATH (a line for each), plugin:PATH")
      ->type_name("SINK")
      ->capture_default_str();
  verb.add_option("--out", o.files.out, "folder for --sink npy")->type_name("DIR");
  verb.add_option("--report", o.files.report, "write the report to a file, as JSON")->type_name("FILE");
  verb.add_flag("--json", o.json, "print the report as one JSON object");
  verb.add_flag("--quiet", o.quiet, "no progress, no final report");
  verb.add_option("--state", o.state,
                   "resume from this file if it exists; save it at the start, every --state-every and at the end")
      ->type_name("FILE");
  verb.add_option("--state-every", o.state_every,
                   "how often to save the state; after a SIGKILL, a run repeats at most the batches since then")
      ->type_name("TIME")
      ->capture_default_str();
  takes_whole_number(
      verb.add_option("--stopped-exit-code", o.stopped_exit_code,
                       "the exit code if `penstock stop` ended it before it had delivered everything"),
      {0, 255})
      ->capture_default_str();
  verb.add_flag("--dry-run", o.dry_run, "print what would be done, but start nothing");
}

}  // namespace penstock::cli
