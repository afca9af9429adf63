// launch: starts one process per GPU with the environment of torchrun, and ends them together.
#include "actors/gpu_owner/batch_sink.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/output_lock.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/cores.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/control/stop_cost.hpp"
#include "tools/penstock/executables.hpp"
#include "tools/penstock/launch/launch_folder.hpp"
#include "tools/penstock/launch/launch_machine.hpp"
#include "tools/penstock/launch/launch_report.hpp"
#include "tools/penstock/launch/launch_run.hpp"
#include "tools/penstock/launch/session_ranks.hpp"
#include "tools/penstock/launch/stray_processes.hpp"
#include "tools/penstock/machine/throwaway.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/run_rank.hpp"
#include "tools/penstock/state_file.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace penstock::cli {
namespace {

constexpr std::uint32_t restarts_max = 1'000'000;
// A busy machine takes seconds to execute a program.
constexpr nanoseconds shortest_start_deadline = std::chrono::seconds(5);

struct launch_options {
  std::vector<std::string> words;
  config_source source;  // for FILE
  std::optional<std::uint64_t> batches;
  bool digest = false;
  std::string sink;
  std::string out;
  std::string gpus = "all";
  std::uint32_t max_restarts = 0;
  std::string state;
  std::string state_every = "10s";
  std::string report;
  bool json = false;
  bool quiet = false;
  bool no_prefix = false;
  int stopped_exit_code = exit_ok;

  /// A single argument that is not a program: a config file.
  [[nodiscard]] bool is_file() const { return words.size() == 1 && words[0].ends_with(".toml"); }
};

// ---- the program ------------------------------------------------------------------------------------------

std::string from_environment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// Lets sessions restart one by one, at their last positions.
result<void> make_resumable(launch_work& work, const launch_options& o) {
  work.resumable = true;
  if (!o.report.empty()) work.files["report"] = whole_path(o.report);
  if (!o.state.empty()) work.files["state"] = whole_path(o.state);
  if (o.state.empty()) return {};
  const auto every = parse_state_pace(o.state_every);
  if (!every) return tl::unexpected(every.error());
  work.state_every = *every;
  work.state_file = std::make_shared<state_keeper>(o.state);
  if (auto ok = check_replaceable(o.state); !ok) return ok;
  auto state = work.state_file->read();
  if (!state) return tl::unexpected(std::move(state.error()));
  work.state = std::move(*state);
  return {};
}

result<launch_work> prepare(const launch_options& o) {
  if (o.words.empty())
    return refuse(errc::usage,
                  "which program? For example: penstock launch --gpus all -- ./trainer --epochs 3");
  const auto choice = parse_gpu_choice(o.gpus);
  if (!choice) return tl::unexpected(choice.error());
  launch_work work;
  auto program =
      o.is_file() ? result<std::string>(own_program()) : executable_in(path_of_environment(), o.words[0]);
  if (!program) return tl::unexpected(std::move(program.error()));
  work.program = std::move(*program);
  work.arguments = [words = std::vector<std::string>(o.words.begin() + 1, o.words.end())](std::uint32_t) {
    return words;
  };
  work.environment = machine::environment_now();
  std::vector<launch_gpu> gpus;
  if (choice->which != gpu_choice::kind::host) {
    auto found = visible_gpus();
    if (!found) return tl::unexpected(std::move(found.error()));
    gpus = std::move(*found);
  }
  auto places = plan_places(*choice, gpus, process::allowed_cores());
  if (!places) return tl::unexpected(std::move(places.error()));
  work.places = std::move(*places);
  const auto port = free_port();
  if (!port) return tl::unexpected(port.error());
  work.names = {from_environment("PENSTOCK_GROUP", fmt::format("launch-{}", ::getpid())),
                from_environment("MASTER_ADDR", "127.0.0.1"), *port, 0, o.max_restarts};
  if (auto ok = add_meeting_place(work.names); !ok) return tl::unexpected(std::move(ok.error()));
  work.rules.ranks = static_cast<std::uint32_t>(work.places.size());
  work.rules.max_restarts = o.max_restarts;
  if (o.is_file()) {
    if (auto ok = make_resumable(work, o); !ok) return tl::unexpected(std::move(ok.error()));
  } else if (!o.state.empty()) {
    return refuse(errc::usage, "--state needs a config file: only sessions have a state");
  }
  work.all_to_stderr = o.json;
  work.prefixed = !o.no_prefix;
  if (colours_on(o.json ? STDERR_FILENO : STDOUT_FILENO))
    work.colours = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m", "\033[31m"};
  work.tell = [](const std::string& line) { say(styled(style::yellow, "launch:") + " " + line); };
  return work;
}

// ---- sessions ---------------------------------------------------------------------------------------------

std::vector<std::string> run_arguments(const launch_options& o) {
  std::vector<std::string> words;
  const auto add = [&words](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  for (const std::string& assignment : o.source.sets) add("--set", assignment);
  if (o.source.epochs) add("--epochs", *o.source.epochs);
  if (o.source.workers) add("--workers", *o.source.workers);
  if (o.source.slots) add("--slots", *o.source.slots);
  if (o.batches) add("--batches", std::to_string(*o.batches));
  if (o.digest) words.emplace_back("--digest");
  words.emplace_back("--quiet");
  return words;
}

/// Loads the file as the first rank will, so that an error is reported once, before anything starts.
tl::expected<config_file::loaded_config, config_file::rejection> load_as_rank(const launch_options& o,
                                                                              std::size_t ranks) {
  config_source source = o.source;
  source.purpose = config_file::config_purpose::stream;
  source.sets.push_back("sampler.rank=0");
  source.sets.push_back(fmt::format("sampler.world_size={}", ranks));
  return load(source);
}

/// Reports an unreadable file as other verbs do, whatever GPUs there are.
std::optional<config_file::rejection> trouble_with_file(const launch_options& o) {
  if (!o.is_file()) return std::nullopt;
  auto loaded = load_as_rank(o, 1);
  if (loaded || loaded.error().code != errc::io) return std::nullopt;
  return std::move(loaded.error());
}

/// A lost session restarts, unless the file says "fail".
bool waits_for_lost(const config_file::loaded_config& loaded) {
  return !loaded.sources.contains("group.on_lost_rank") ||
         loaded.values.group.on_lost_rank == lost_rank_rule::wait;
}

session_work session_of(const launch_options& o, const config_file::loaded_config& loaded,
                        const std::string& report_folder) {
  std::vector<std::string> arguments = run_arguments(o);
  // A lost rank restarts alone.
  if (waits_for_lost(loaded)) {
    arguments.emplace_back("--set");
    arguments.emplace_back("group.on_lost_rank=wait");
  }
  return {o.source.file, loaded.values.name, loaded.values.metrics.listen, std::move(arguments), o.sink,
          o.out,         report_folder};
}

void follow_rules_of(launch_rules& rules, const config_file::loaded_config& loaded) {
  const group_config& group = loaded.values.group;
  rules.lost_after = group.lost_after;
  // Replace a hung rank before its group gives up waiting for it.
  rules.start_deadline = std::max<nanoseconds>(group.join_timeout / 4, shortest_start_deadline);
  // Rank 0 stays 4 s for ranks that may still arrive (rule G30), and then writes its report.
  rules.grace_after_failure = std::chrono::seconds(5);
  if (!waits_for_lost(loaded)) return;
  rules.restart_one = supervision::restart_settings{.intensity_max = group.restart.intensity.max,
                                                    .intensity_within = group.restart.intensity.within};
}

// ---- the end ----------------------------------------------------------------------------------------------

int tell_end(const launch_options& o, const launch_work& work, const launch_result& r,
             const session_work* sessions, int signal) {
  const nlohmann::ordered_json report = group_report(work, r, sessions);
  if (o.json) print_json(report);
  if (!o.quiet) {
    say_raw(rank_table(work, r, report, terminal_width(STDERR_FILENO)));
    say_raw(digests_for_people(report));
    const style how = r.outcome == launch_outcome::failed    ? style::red
                      : r.outcome == launch_outcome::stopped ? style::yellow
                                                             : style::green;
    const std::string why = cause_sentence(r);
    say(styled(how, report["outcome"].get<std::string>()) + (why.empty() ? "" : ": " + why));
    if (r.outcome == launch_outcome::stopped && sessions != nullptr && o.state.empty()) say(position_not_saved("launch"));
  }
  if (r.state_trouble)
    say(fmt::format("{} the state '{}' was not updated: {}", styled(style::yellow, "warning:"),
                    printable(o.state), r.state_trouble->message));
  if (!o.report.empty()) {
    if (auto ok = replace_file(o.report, report.dump(2) + "\n"); !ok)
      return refuse_with(exit_failed, ok.error(), o.json);
  }
  if (r.outcome == launch_outcome::failed) return exit_failed;
  if (r.outcome == launch_outcome::stopped) return signal == SIGINT ? exit_interrupted : exit_terminated;
  // All ranks exited 0, but an order ended them early.
  return report["outcome"] == "stopped" && !o.batches ? o.stopped_exit_code : exit_ok;
}

int launch(launch_options o) {
  if (o.is_file()) o.source.file = o.words[0];
  if (const auto no = trouble_with_file(o)) return tell_rejection(*no, o.json);
  stop_signals signals;  // must exist before any thread starts
  if (auto ok = gpu_owner::check_sink_choice(o.sink.empty() ? "null" : o.sink, o.out); !ok) return refuse_with(exit_usage, ok.error(), o.json);
  // Keeps other runs from writing these files until this process ends. Locked before the state is read.
  const auto report = lock_files("the report", {o.report});
  if (!report) return refuse_with(exit_failed, report.error(), o.json);
  const auto state = lock_files("the state", {o.state});
  if (!state) return refuse_with(exit_failed, state.error(), o.json);
  auto work = prepare(o);
  if (!work)
    return refuse_with(work.error().code == errc::usage ? exit_usage : exit_failed, work.error(), o.json);
  if (!o.report.empty()) {
    if (auto ok = check_replaceable(o.report); !ok) return refuse_with(exit_failed, ok.error(), o.json);
  }
  launch_folder reports;
  std::optional<session_work> sessions;
  if (o.is_file()) {
    if (auto ok = reports.make(); !ok) return refuse_with(exit_failed, ok.error(), o.json);
    const auto loaded = load_as_rank(o, work->places.size());
    if (!loaded) return tell_rejection(loaded.error(), o.json);
    sessions = session_of(o, *loaded, reports.path());
    follow_rules_of(work->rules, *loaded);
    work->arguments = [&work, &sessions](std::uint32_t rank) {
      std::error_code ignored;  // removes the report of an earlier process
      std::filesystem::remove(report_path(*sessions, rank), ignored);
      return rank_arguments(*sessions, work->places[rank], rank);
    };
  }
  adopt_orphans();
  launch_result made;
  {
    process::io_thread io;
    launch_run run(io, *work);
    signals.listen([&](int times) { run.stop(signals.received(), times > 1); },
                   {.first = fmt::format("stopping: passing the signal on to {}", counted(work->places.size(), "rank")),
                    .again = "kill them",
                    .left_behind = [file = work->state_file] { return file ? file->left_behind() : "without --state, no position is kept"; }});
    made = run.run();
    signals.ignore();
  }
  if (sessions) explain_cause(made, *sessions);
  return tell_end(o, *work, made, sessions ? &*sessions : nullptr, signals.received());
}

}  // namespace

void add_launch_command(verb_table& verbs) {
  auto o = std::make_shared<launch_options>();
  CLI::App* const verb = &verbs.add(
      {"launch",
       verb_group::run,
       "start a session or a program once per GPU, as a group of ranks",
       "Starts one process for each GPU: with FILE a session (penstock run FILE), which delivers its part "
       "of the samples, otherwise PROGRAM. Each rank gets the variables that torchrun sets: RANK, "
       "LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (a free port). Each rank uses the "
       "GPU with the number LOCAL_RANK, and only its share of the cores near that GPU.\n\n"
       "The output of the ranks is prefixed with their number. If a rank fails, the others get SIGTERM, "
       "and SIGKILL 4 s later; with --max-restarts all ranks are started again. The error names the rank "
       "that failed first. Processes that the ranks leave behind are killed. A session that is lost (a "
       "signal ended it, or it was silent for 10 s) is restarted alone and continues where it stopped.\n\n"
       "Ctrl-C and SIGTERM are passed on to the ranks, which have 25 s to end. A second signal kills them.",
       {{"penstock launch photos.toml --gpus all", "a session on each GPU"},
        {"penstock launch photos.toml --gpus host:4 --json --digest",
         "four sessions without a GPU, one report"},
        {"penstock launch photos.toml --gpus all --state photos.state",
         "continue where an earlier run ended, even with a different number of GPUs"},
        {"penstock launch --gpus all -- python train.py --epochs 3", "a PyTorch program on all GPUs"},
        {"penstock launch --gpus 0,2 --max-restarts 3 -- ./trainer", "two GPUs; up to three restarts"}}},
      [o] { return launch(*o); });
  verb->add_option("FILE|PROGRAM", o->words,
                   "a config file (.toml); or, after --, a program and its arguments")
      ->required();
  verb->add_option("--gpus", o->gpus,
                   "\"all\", GPU numbers such as 0,2,3, or host:N for N ranks without a GPU")
      ->type_name("GPUS")
      ->capture_default_str();
  takes_whole_number(verb->add_option("--max-restarts", o->max_restarts,
                                      "start all ranks again up to N times when one fails"),
                     {0, restarts_max})
      ->capture_default_str();
  verb->add_option("--state", o->state,
                   "resume all ranks from this file if it exists; save the group's state there every "
                   "--state-every and at the end")
      ->type_name("FILE");
  verb->add_option("--state-every", o->state_every, "how often to save the state")
      ->type_name("TIME")
      ->capture_default_str();
  add_set_option(*verb, o->source);
  verb->add_option("--epochs", o->source.epochs, "for each session: number of epochs")->type_name("N");
  verb->add_option("--workers", o->source.workers, "for each session: worker processes, or \"auto\"")
      ->type_name("N");
  verb->add_option("--slots", o->source.slots, "for each session: slots of each worker")->type_name("N");
  takes_whole_number(verb->add_option("--batches", o->batches, "each session stops after N batches"),
                     {1, count_max});
  takes_whole_number(
      verb->add_option(
          "--stopped-exit-code", o->stopped_exit_code,
          "the exit code if `penstock stop` ended the sessions before they had delivered everything"),
      {0, 255})
      ->capture_default_str();
  verb->add_flag("--digest", o->digest,
                 "each session hashes every batch on the device; the report has the digests");
  verb->add_option("--sink", o->sink, "where each session's batches go: null, npy, journal:PATH")
      ->type_name("SINK");
  verb->add_option("--out", o->out, "folder for --sink npy, with a folder for each rank")->type_name("DIR");
  verb->add_option("--report", o->report, "write a report to this file (JSON, schema penstock.group/1)")
      ->type_name("FILE");
  verb->add_flag("--no-prefix", o->no_prefix, "do not prefix lines with their rank");
  verb->add_flag("--json", o->json,
                 "the report as one JSON object on stdout; the ranks' output goes to stderr");
  verb->add_flag("--quiet", o->quiet, "no table, no closing line");
}

}  // namespace penstock::cli
