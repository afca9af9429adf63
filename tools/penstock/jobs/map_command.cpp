// map: runs a job for each line of a file in a pool, and writes the results in the order of the lines.
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/executables.hpp"
#include "tools/penstock/jobs/command_environment.hpp"
#include "tools/penstock/jobs/map_dry_run.hpp"
#include "tools/penstock/jobs/map_end.hpp"
#include "tools/penstock/jobs/map_files.hpp"
#include "tools/penstock/jobs/map_options.hpp"
#include "tools/penstock/jobs/map_progress.hpp"
#include "tools/penstock/jobs/map_run.hpp"
#include "tools/penstock/jobs/map_work.hpp"
#include "tools/penstock/jobs/result_files.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/progress.hpp"
#include "tools/penstock/run/run_rank.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/pool.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ranges>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

// The first signal already cancels all jobs, so only the workers' exits remain to wait for.
constexpr std::chrono::milliseconds end_after_signal = 2s;
constexpr std::chrono::milliseconds end_of_running_jobs = 500ms;
// How many lines reading may be ahead of writing, so that one slow job does not block the others. The
// bookkeeping takes about 20 MB; [jobs] memory bounds the results.
constexpr std::uint64_t lines_ahead_max = 65'536;

/// Whether every mistake is in an option ("--workers", "--set"), so that no file is to blame.
bool only_in_options(const config_file::rejection& refused) {
  return std::ranges::all_of(refused.diagnostics, [](const config_file::diagnostic& one) {
    return one.level == config_file::severity::warning || one.where.origin.starts_with("--");
  });
}

/// Checks the device program's name, so that a mistyped name is one error instead of one for each job.
result<void> check_device_program(const std::string& name, const config& settings) {
  const auto& programs = settings.jobs.programs;
  if (name.empty() || programs.contains(name)) return {};
  const std::string names = fmt::format("{}", fmt::join(std::views::keys(programs), ", "));
  return refuse(errc::usage, "--program: there is no '{}' in FILE's [jobs.programs]; available: {}",
                printable(name), names.empty() ? "none" : names);
}

/// Looks for the program, so that a missing one is one error instead of one for each job. `path` is the workers' PATH.
result<void> check_program(const command_template& command, std::string_view path) {
  const std::string program = command.program();
  if (program.empty()) return {};
  if (const auto found = executable_in(path, program); !found)
    return refuse(errc::usage, "--command: {}", found.error().message);
  return {};
}

std::string path_of_workers(const config& settings) {
  if (const auto own = settings.loader.env.find("PATH"); own != settings.loader.env.end()) return own->second;
  return path_of_environment();
}

/// `environment`: variables that commands need in addition to the workers'. `files`: for --results, or null.
result<std::unique_ptr<work>> work_of(const map_options& o, const config& settings,
                                      std::vector<std::string> environment, const result_files* files) {
  if (!o.function.empty()) {
    if (auto ok = check_device_program(o.program, settings); !ok)
      return tl::unexpected(std::move(ok.error()));
    return call_function(o.function, o.program, files);
  }
  auto command = command_template::parse(o.command);
  if (!command) return tl::unexpected(std::move(command.error()));
  if (auto ok = check_program(*command, path_of_workers(settings)); !ok)
    return tl::unexpected(std::move(ok.error()));
  const auto keep = parse_bytes(o.keep_output);
  if (!keep) return refuse(errc::usage, "--keep-output: {}", keep.error().message);
  const auto memory = parse_bytes(o.memory.empty() ? "0B" : o.memory);
  if (!memory) return refuse(errc::usage, "--memory: {}", memory.error().message);
  return run_command_line(std::move(*command), o.command,
                          o.fail_on_exit ? exit_rule::must_be_0 : exit_rule::any_is_ok,
                          {*keep, *memory, std::move(environment), files});
}

// ---- the run ----------------------------------------------------------------------------------------------

/// Why the pool ended early.
struct pool_ending {
  std::atomic<bool> by_us = false;     // by this run: its output is lost, or too many jobs have failed
  std::atomic<bool> by_order = false;  // `penstock stop`
};

map_result run_on(Pool& pool, const map_options& o, map_run& run, line_source& input, stop_signals& signals,
                  const pool_ending& ending) {
  const auto begin = std::chrono::steady_clock::now();
  signals.listen(
      [&](int times) {
        const auto patience = times == 1 ? end_after_signal : end_of_running_jobs;
        run.stop();
        run.hurry(patience);
        pool.stop(patience, signals.asked_by());
      },
      {.first = fmt::format("stopping: cancelling running jobs{}", o.journal.empty() ? "" : "; the journal has the finished ones"),
       .left_behind = [has_journal = !o.journal.empty()] {
         return has_journal ? "the output is incomplete; the journal has the finished jobs" : "the output is incomplete";
       }});
  map_result made;
  {
    std::optional<progress_display> display;
    if (!o.quiet) {
      display.emplace(compared<map_status>(
          [&] {
            return map_status{run.counts(), input.size(), pool.status()};
          },
          map_progress_line));
    }
    if (auto ok = run.run(); !ok) made.trouble = ok.error();
    pool.close();
    made.counts = run.counts();
    made.by_order = made.trouble && ending.by_order;
    // The run ended early: by a signal, by an order, or because the pool failed. A run that has finished its last line has no error.
    if (!made.trouble && (made.counts.of(job_status::cancelled) > 0 || !run.has_read_all())) {
      made.trouble = pool.report().error;
      made.by_order = !made.trouble;
    }
  }
  signals.ignore();
  made.signal = signals.received();
  made.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return made;
}

map_rules rules_of(const map_options& o, const work& what, const config& settings) {
  map_rules rules;
  rules.lines = what.lines();
  rules.bad_lines = o.on_bad_line == "skip" ? bad_line_rule::skip : bad_line_rule::fail;
  rules.under_way_max = lines_ahead_max;
  rules.bytes_waiting_max = settings.jobs.memory.bytes;
  rules.retries = o.retries;
  rules.retry_failed = o.retry_failed;
  rules.format = o.format();
  rules.failures_max = halt_rule_from(o.halt)->failures_max;
  return rules;
}

int run_dry(const map_options& o, map_files& files, const work& what, const map_rules& rules) {
  const auto ok =
      dry_run(*files.input, what, {rules.bad_lines, files.journal.get(), rules.retry_failed, o.json},
              [](const std::string& line) { print(line); });
  return ok ? exit_ok : refuse_with(exit_failed, ok.error(), o.json);
}

std::map<std::string, std::string> files_of_mapping(const map_options& o) {
  std::map<std::string, std::string> all;
  const auto add = [&all](const char* kind, const std::string& path) {
    if (!path.empty() && path != "-") all[kind] = whole_path(path);
  };
  add("output", o.output);
  add("results", o.results);
  add("journal", o.journal);
  add("job_log", o.job_log);
  return all;
}

int run_all(const map_options& o, const config& settings, map_files& files, const work& what, map_rules rules,
            stop_signals& signals) {
  std::atomic<map_run*> running = nullptr;
  pool_ending ending;
  pool_options options;
  options.files = files_of_mapping(o);
  options.judged = true;
  options.ends = session_scope::process;  // the remaining lines are written after the pool's end
  // After `penstock stop`, or when no worker is left, the run may still
  // be waiting for lines or for the reader of its output.
  options.on_event = [&running, &ending](const event& news) {
    map_run* const run = running;
    if (run == nullptr || (news.kind != event_kind::stopping && news.kind != event_kind::run_failed)) return;
    ending.by_order = news.kind == event_kind::stopping && !ending.by_us;
    run->stop();
    run->hurry(end_after_signal);
  };
  Pool pool(settings, options);
  job_starter jobs(pool, what);
  map_run::deps deps;
  deps.input = files.input.get();
  deps.output = files.output.fd();
  deps.output_name = files.output.name();
  deps.errors = STDERR_FILENO;
  deps.begin_output = [&files] { return files.output.empty(); };
  deps.journal = files.journal.get();
  deps.log = files.log.get();
  deps.start = [&jobs](const auto& line, const auto& settled) { return jobs.start(line, settled); };
  deps.judge = [&pool, function = what.function()](job_verdict verdict) { pool.judge(function, verdict); };
  const auto stop_pool = [&pool, &ending] {
    ending.by_us = true;
    pool.stop(end_of_running_jobs, "`penstock map`, because its output is lost or --halt applies");
  };
  deps.abandon = stop_pool;
  deps.halt = [stop_pool, &jobs, now = halt_rule_from(o.halt)->cancels_running] {
    now ? stop_pool() : jobs.cancel_waiting();
  };
  deps.tell = [](const std::string& line) { log::warn("map", "{}", line); };
  map_run run(rules, std::move(deps));
  running = &run;
  if (pool.report().error) run.stop();  // the pool may have failed before the assignment above
  return tell_end(o, run_on(pool, o, run, *files.input, signals, ending));
}

/// The config of the pool. `environment`: receives the variables that commands need in addition to the
/// workers'.
config settings_of(const map_options& o, const config_file::loaded_config& loaded,
                   std::vector<std::string>& environment) {
  config settings = loaded.values;
  const auto is = [&loaded](const std::string& key, config_file::provenance_kind kind) {
    return loaded.source_of(key).kind == kind;
  };
  if (o.source.file.empty() && is("name", config_file::provenance_kind::derived)) settings.name = "map";
  if (o.quiet && is("log.level", config_file::provenance_kind::fallback))
    settings.log.level = log_level::error;
  if (o.command.empty()) return settings;
  settings.loader.command = {"penstock-worker", "--commands"};
  environment = give_callers_environment(loaded, config_file::process_environment(), settings);
  return settings;
}

int map(map_options o) {
  const auto no = [&o](const failure& why) {
    return refuse_with(why.code == errc::usage ? exit_usage : exit_failed, why, o.json);
  };
  if (auto ok = check_usage(o); !ok) return no(ok.error());
  o.source.purpose = config_file::config_purpose::jobs;
  auto loaded = load(o.source);
  if (!loaded) {
    const int code = tell_rejection(loaded.error(), o.json);
    return only_in_options(loaded.error()) ? exit_usage : code;
  }
  if (!o.quiet) tell_warnings(*loaded);
  std::vector<std::string> environment;
  const config settings = settings_of(o, *loaded, environment);
  std::unique_ptr<result_files> results;
  if (!o.results.empty() && !o.dry_run) {
    auto opened = result_files::open(o.results);
    if (!opened) return no(opened.error());
    results = std::move(*opened);
  }
  const auto what = work_of(o, settings, std::move(environment), results.get());
  if (!what) return no(what.error());

  auto files = open_files(o, (*what)->as_json(), settings.jobs.memory.bytes);
  if (!files) return no(files.error());
  const map_rules rules = rules_of(o, **what, settings);
  if (o.dry_run) return run_dry(o, *files, **what, rules);
  stop_signals signals;
  try {
    return run_all(o, settings, *files, **what, rules, signals);
  } catch (const error& e) {
    return no(e.as_failure());
  }
}

}  // namespace

void add_map_command(verb_table& verbs) {
  const auto o = std::make_shared<map_options>();
  CLI::App& verb = verbs.add(
      {"map",
       verb_group::run,
       "run a function or a command for each line of a file",
       "Runs one job for each line of the input, and writes one line of JSON for each, in the order of the "
       "input: index, status, attempts, result, error, input. If a worker dies, another one tries its job "
       "again; a "
       "job that kills three workers is reported as poisoned. The exit code is 0 if every job is ok, "
       "otherwise 1.\n\n"
       "With --command each line is one argument of a program: it replaces {} in the command, or becomes the "
       "last argument. No shell is involved; quotes and backslashes work as in a shell. The result is "
       "{\"exit\":0,\"stdout\":\"..\",\"stderr\":\"..\"}.\n\n"
       "With --function each line is a JSON value, which the function receives unchanged. [loader] command "
       "in "
       "FILE is the worker program with the function. Results that are not JSON become strings. With "
       "--program the function's result is passed to a device program on the GPU, which makes the job's "
       "result from it.\n\n"
       "Commands get this program's environment, in which PENSTOCK_WORKER is the number of the worker, from "
       "0. "
       "With --raw, the output is byte for byte what the commands write; with --results, it goes to "
       "files.\n\n"
       "With --journal, running the same command line again after an interruption continues where it "
       "stopped, and the output is complete.",
       {{"penstock map --command 'gzip -9 {}' --input files.txt --output done.jsonl",
         "run a program for each line"},
        {"ls *.wav | penstock map --command 'sox {} {}.flac'", "read a pipe, write to stdout"},
        {"penstock map jobs.toml --function thumbnail --input items.jsonl --output out.jsonl",
         "call a function of your own worker program"},
        {"penstock map jobs.toml --function decode --program embedding --input items.jsonl --output "
         "out.jsonl",
         "pass the function's result to a program on the GPU"},
        {"penstock map --command './simulate {}' --input seeds.txt --output out.jsonl --journal run.journal "
         "--timeout 10m",
         "continue where an earlier run ended"},
        {"find . -name '*.c' -print0 | penstock map -0 --command 'wc -l' --raw",
         "any file name; plain output"},
        {"penstock map --command 'sh -c \"CUDA_VISIBLE_DEVICES=$PENSTOCK_WORKER ./train $1\" sh {}' --input "
         "seeds.txt "
         "--workers 4 --results runs",
         "four commands at a time, each with its own GPU, and their output in files"},
        {"penstock map --command 'curl -sS {}' --input urls.txt --output out.jsonl --retries 3 "
         "--fail-on-exit",
         "repeat commands that exit with a code other than 0"}}},
      [o] { return map(*o); });
  add_map_options(verb, o);
}

}  // namespace penstock::cli
