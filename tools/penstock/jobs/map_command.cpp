// map: runs a job for each line of a file in a pool, and writes the results in the order of the lines.
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/executables.hpp"
#include "tools/penstock/jobs/job_log.hpp"
#include "tools/penstock/jobs/map_output.hpp"
#include "tools/penstock/jobs/map_progress.hpp"
#include "tools/penstock/jobs/map_run.hpp"
#include "tools/penstock/jobs/map_work.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/progress.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/pool.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

// The first signal already cancels all jobs, so only the workers' exits remain to wait for.
constexpr std::chrono::milliseconds end_after_signal = 2s;
constexpr std::chrono::milliseconds end_after_second_signal = 500ms;
// How many lines reading may be ahead of writing, so that one slow job does not block the others. The
// bookkeeping takes about 20 MB; [jobs] memory bounds the results.
constexpr std::uint64_t lines_ahead_max = 65'536;
constexpr std::uint32_t retries_max = 1'000'000;

struct map_options {
  config_source source;
  std::string function;
  std::string command;
  std::string program;
  std::string input = "-";
  std::string output = "-";
  std::uint32_t retries = 0;
  std::string journal;
  std::string job_log;
  std::string memory;
  bool retry_failed = false;
  bool fail_on_exit = false;
  std::string on_bad_line = "fail";
  std::string keep_output = "1MiB";
  bool json = false;
  bool quiet = false;
};

// ---- the command line -------------------------------------------------------------------------------------

result<void> check_usage(const map_options& o) {
  if (o.function.empty() == o.command.empty())
    return refuse(
        errc::usage,
        "give either --function NAME, with FILE naming its worker program, or --command 'PROGRAM {{}}'");
  if (!o.function.empty() && o.source.file.empty())
    return refuse(errc::usage,
                  "--function needs FILE: its [loader] command is the worker program with the function");
  if (o.command.empty() && !o.memory.empty())
    return refuse(errc::usage, "--memory needs --command; for functions set [loader.limits] memory");
  if (o.function.empty() && !o.program.empty())
    return refuse(errc::usage, "--program needs --function: the device program gets what the function gives");
  if (o.command.empty() && o.fail_on_exit) return refuse(errc::usage, "--fail-on-exit needs --command");
  if (o.retry_failed && o.journal.empty())
    return refuse(errc::usage, "--retry-failed needs --journal, which records the failed jobs");
  return {};
}

/// Whether every mistake is in an option ("--workers", "--set"), so that no file is to blame.
bool only_in_options(const config_file::rejection& refused) {
  return std::ranges::all_of(refused.diagnostics, [](const config_file::diagnostic& one) {
    return one.level == config_file::severity::warning || one.where.origin.starts_with("--");
  });
}

/// Device programs: a mistyped name is one error instead of one for each job.
result<void> check_device_program(const std::string& name, const config& settings) {
  const auto& programs = settings.jobs.programs;
  if (name.empty() || programs.contains(name)) return {};
  std::string names;
  for (const auto& [one, path] : programs) names += (names.empty() ? "" : ", ") + one;
  return refuse(errc::usage, "--program: there is no '{}' in FILE's [jobs.programs]; there are: {}",
                printable(name), names.empty() ? "none" : names);
}

/// So that a missing program is one error instead of one for each job. `path` is the workers' PATH.
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

result<std::unique_ptr<work>> work_of(const map_options& o, const config& settings) {
  if (!o.function.empty()) {
    if (auto ok = check_device_program(o.program, settings); !ok)
      return tl::unexpected(std::move(ok.error()));
    return call_function(o.function, o.program);
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
                          o.fail_on_exit ? exit_rule::must_be_0 : exit_rule::any_is_ok, {*keep, *memory});
}

// ---- files ------------------------------------------------------------------------------------------------

void tell_journal(const map_journal& journal, const std::string& path) {
  if (journal.torn_bytes() > 0 || journal.unreadable() > 0) {
    log::warn("map", "the journal '{}' is damaged: {} bytes at its end and {} lines are ignored",
              printable(path), journal.torn_bytes(), journal.unreadable());
  }
}

// ---- the run ----------------------------------------------------------------------------------------------

struct map_result {
  map_counts counts;
  double seconds = 0;
  std::optional<failure> trouble;
  int signal = 0;
  bool by_order = false;  // of `penstock stop`
  [[nodiscard]] bool stopped() const {
    return signal != 0 || by_order || (trouble && trouble->code == errc::stopped);
  }
};

const char* outcome_name(const map_result& r) {
  if (r.stopped()) return "stopped";
  return r.trouble ? "failed" : "finished";
}

nlohmann::ordered_json summary_of(const map_result& r) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const job_status status : all_job_statuses) counts[name_of(status)] = r.counts.of(status);
  nlohmann::ordered_json all{{"schema", "penstock.map/1"},
                             {"outcome", outcome_name(r)},
                             {"jobs", r.counts.jobs},
                             {"counts", std::move(counts)},
                             {"from_journal", r.counts.from_journal},
                             {"skipped_lines", r.counts.skipped},
                             {"seconds", r.seconds},
                             {"error", nullptr}};
  if (r.trouble) all["error"] = telemetry::as_json(*r.trouble)["error"];
  return all;
}

int tell_end(const map_options& o, const map_result& r) {
  if (o.json) {
    const std::string text =
        summary_of(r).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    // So that stdout contains nothing but results.
    o.output == "-" ? say(text) : print(text);
  }
  if (!o.quiet) {
    const style how = r.trouble ? style::red : r.stopped() ? style::yellow : style::green;
    say(fmt::format("{} after {}: {}", styled(how, outcome_name(r)),
                    duration_for_people(nanoseconds(static_cast<std::int64_t>(r.seconds * 1e9))),
                    map_counts_line(r.counts)));
  }
  if (r.trouble && !r.stopped() && !o.json) say(styled(style::red, "error:") + " " + r.trouble->message);
  if (r.signal == SIGINT) return exit_interrupted;
  if (r.signal != 0) return exit_terminated;
  return r.trouble || r.counts.of(job_status::ok) != r.counts.jobs ? exit_failed : exit_ok;
}

map_result run_on(Pool& pool, const map_options& o, map_run& run, line_source& input, stop_signals& signals) {
  const auto begin = std::chrono::steady_clock::now();
  signals.listen(
      [&](int times) {
        run.stop();
        pool.stop(times == 1 ? end_after_signal : end_after_second_signal);
      },
      o.journal.empty() ? "stopping: cancelling running jobs (press again to stop at once)"
                        : "stopping: cancelling running jobs; the journal has the finished ones (press again "
                          "to stop at once)");
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
    // Jobs are cancelled by a signal, by an order, or because the pool failed; after the last line nobody was told.
    if (!made.trouble && made.counts.of(job_status::cancelled) > 0) {
      made.trouble = pool.report().error;
      made.by_order = !made.trouble;
    }
  }
  signals.ignore();
  made.signal = signals.received();
  made.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return made;
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
  config settings = loaded->values;
  if (o.source.file.empty() && loaded->source_of("name").kind == config_file::provenance_kind::derived)
    settings.name = "map";
  if (!o.command.empty()) settings.loader.command = {"penstock-worker", "--commands"};
  const auto what = work_of(o, settings);
  if (!what) return no(what.error());

  stop_signals signals;
  auto input = line_source::open(o.input, settings.jobs.memory.bytes);
  if (!input) return no(input.error());
  auto output = map_output::open(o.output);
  if (!output) return no(output.error());
  if (auto ok = check_different((*input)->fd(), output->fd(), o.journal, o.job_log); !ok)
    return no(ok.error());
  std::unique_ptr<map_journal> journal;
  if (!o.journal.empty()) {
    auto opened = map_journal::open(o.journal, (*what)->as_json());
    if (!opened) return no(opened.error());
    journal = std::move(*opened);
    tell_journal(*journal, o.journal);
  }
  std::unique_ptr<job_log> jobs;
  if (!o.job_log.empty()) {
    auto opened = job_log::open(o.job_log);
    if (!opened) return no(opened.error());
    jobs = std::move(*opened);
  }
  try {
    Pool pool(settings);
    map_rules rules;
    rules.lines = (*what)->lines();
    rules.bad_lines = o.on_bad_line == "skip" ? bad_line_rule::skip : bad_line_rule::fail;
    rules.under_way_max = lines_ahead_max;
    rules.bytes_waiting_max = settings.jobs.memory.bytes;
    rules.retries = o.retries;
    rules.retry_failed = o.retry_failed;
    map_run::surroundings around;
    around.input = input->get();
    around.output = output->fd();
    around.output_name = output->name();
    around.begin_output = [&output] { return output->empty(); };
    around.journal = journal.get();
    around.log = jobs.get();
    around.start = [&pool, &what](const auto& line, const auto& settled) {
      return begin_job(pool, **what, line, settled);
    };
    around.abandon = [&pool] { pool.stop(end_after_second_signal); };
    around.tell = [](const std::string& line) { log::warn("map", "{}", line); };
    map_run run(rules, std::move(around));
    return tell_end(o, run_on(pool, o, run, **input, signals));
  } catch (const error& e) {
    return no(e.as_failure());
  }
}

void add_options(CLI::App& verb, const std::shared_ptr<map_options>& o) {
  verb.add_option("FILE", o->source.file, "a config file with [jobs] and [loader]");
  verb.add_option("--function", o->function, "the function of FILE's worker program to call")
      ->type_name("NAME");
  verb.add_option("--program", o->program,
                  "the device program of FILE's [jobs.programs] that gets each function's result, and gives "
                  "the job's")
      ->type_name("NAME");
  verb.add_option("--command", o->command, "the program to run; {} is replaced by the line")
      ->type_name("COMMAND");
  verb.add_option("--input", o->input, "one job for each line; -: stdin")
      ->type_name("IN")
      ->capture_default_str();
  verb.add_option("--output", o->output, "one line for each job; -: stdout")
      ->type_name("OUT")
      ->capture_default_str();
  verb.add_option("--workers", o->source.workers, "worker processes, or \"auto\"")->type_name("N");
  verb.add_option("--timeout", o->source.timeout, "time limit of one attempt of a job")->type_name("TIME");
  takes_whole_number(
      verb.add_option("--retries", o->retries,
                      "repeat a job up to N times if it throws, times out or exits with a code other than 0"),
      {0, retries_max})
      ->capture_default_str();
  verb.add_option("--journal", o->journal,
                  "record finished jobs in this file, and skip those that it contains")
      ->type_name("JOURNAL");
  verb.add_option("--job-log", o->job_log,
                  "append a line for each job when it ends: time, exit code, seconds, input line")
      ->type_name("LOG");
  verb.add_option("--memory", o->memory,
                  "end a command that uses more private memory, with all that it has started")
      ->type_name("SIZE");
  verb.add_flag("--retry-failed", o->retry_failed, "repeat jobs of the journal that are not ok");
  verb.add_flag("--fail-on-exit", o->fail_on_exit, "commands that exit with a code other than 0 have failed");
  verb.add_option(
          "--on-bad-line", o->on_bad_line,
          "what to do about lines that are not JSON (of a command: that contain a NUL byte): end the run, or "
          "report and skip them")
      ->check(CLI::IsMember({"fail", "skip"}))
      ->capture_default_str();
  verb.add_option("--keep-output", o->keep_output,
                  "how much of each command's stdout and of its stderr to keep")
      ->type_name("SIZE")
      ->capture_default_str();
  add_set_option(verb, o->source);
  verb.add_flag("--json", o->json,
                "a summary as one JSON object on stdout (on stderr if results go to stdout)");
  verb.add_flag("--quiet", o->quiet, "no progress, no closing line");
}

}  // namespace

void add_map_command(verb_table& verbs) {
  const auto o = std::make_shared<map_options>();
  CLI::App& verb = verbs.add(
      {"map",
       verb_group::run,
       "run a function or a command for each line of a file",
       "Runs one job for each line of the input, and writes one line of JSON for each, in the order of the "
       "input: index, status, attempts, result, error. If a worker dies, another one tries its job again; a "
       "job that kills three workers is reported as poisoned. The exit code is 0 if every job is ok, "
       "otherwise 1.\n\n"
       "With --command each line is one argument of a program: it replaces {} in the command, or becomes the "
       "last argument. No shell is involved; quotes and backslashes work as in a shell. The result is "
       "{\"exit\":0,\"stdout\":\"..\",\"stderr\":\"..\"}.\n\n"
       "With --function each line is a JSON value, which the function receives unchanged. [loader] command "
       "in "
       "FILE is the worker program with the function. Results that are not JSON become strings. With "
       "--program "
       "the function's result goes to the GPU, where a device program turns it into the job's result.\n\n"
       "With --journal, running the command again after an interruption continues where it was, and the "
       "output "
       "is complete.",
       {{"penstock map --command 'gzip -9 {}' --input files.txt --output done.jsonl",
         "run a program for each line"},
        {"ls *.wav | penstock map --command 'sox {} {}.flac'", "read a pipe, write to stdout"},
        {"penstock map jobs.toml --function thumbnail --input items.jsonl --output out.jsonl",
         "call a function of your own worker program"},
        {"penstock map jobs.toml --function decode --program embedding --input items.jsonl --output "
         "out.jsonl",
         "give what the function makes to a program on the GPU"},
        {"penstock map --command './simulate {}' --input seeds.txt --output out.jsonl --journal run.journal "
         "--timeout 10m",
         "continue where an earlier run ended"},
        {"penstock map --command 'curl -sS {}' --input urls.txt --output out.jsonl --retries 3 "
         "--fail-on-exit",
         "repeat commands that exit with a code other than 0"}}},
      [o] { return map(*o); });
  add_options(verb, o);
}

}  // namespace penstock::cli
