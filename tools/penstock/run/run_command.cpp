// run: a config file from its first batch to its closing report.
#include "actors/gpu_owner/batch_sink.hpp"
#include "actors/remote/hosts_setup.hpp"
#include "actors/session/group_membership.hpp"
#include "actors/session/launcher_news.hpp"
#include "runtime/base/output_lock.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/control/stop_cost.hpp"
#include "tools/penstock/dataset/index_display.hpp"
#include "tools/penstock/launch/launcher_link.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/run/closing_text.hpp"
#include "tools/penstock/run/dry_run.hpp"
#include "tools/penstock/run/progress.hpp"
#include "tools/penstock/run/run_options.hpp"
#include "tools/penstock/run/run_rank.hpp"
#include "tools/penstock/run/run_state.hpp"
#include "tools/penstock/state_file.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <penstock/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds end_after_second_signal = 2s;
constexpr std::chrono::milliseconds end_after_third_signal = 500ms;
constexpr auto opening_step = 20ms;

/// How long the shutdown may take after this many stop requests; empty: as long as [supervisor] shutdown says.
std::optional<std::chrono::milliseconds> time_to_end(int requests) {
  if (requests == 1) return std::nullopt;
  return requests == 2 ? end_after_second_signal : end_after_third_signal;
}

// ---- the run ----------------------------------------------------------------------------------------------

/// A state file takes precedence over the position that the launcher sends.
result<rank_start> where_to_begin(launcher_link& launcher, run_state& file) {
  auto state = file.read();
  if (!state) return tl::unexpected(std::move(state.error()));
  if (!state->empty() || !launcher.there()) return rank_start{std::move(*state), 0};
  return launcher.where_to_begin();
}

/// Checks at the beginning, not after hours, that all output files can be written.
result<void> check_places(const run_files& files, const run_state& state) {
  if (auto ok = gpu_owner::check_sink(files.sink, files.out); !ok) return ok;
  std::vector<std::string> replaced = state.places();
  if (!files.report.empty()) replaced.push_back(files.report);
  for (const std::string& path : replaced) {
    if (auto ok = check_replaceable(path); !ok) return ok;
  }
  return {};
}

/// Runs to the end of the stream. Returns what ended it earlier, if anything. Calls `opened` once the dataset is known, because then the
/// state is known to fit.
std::optional<failure> deliver_all(Session& session, run_state& state, std::chrono::milliseconds pace,
                                   const std::function<void()>& opened) {
  try {
    if (auto ok = state.save_beginning(session); !ok) return ok.error();
    bool over = false;
    while (!over && session.status().samples_expected == 0) over = session.run_for(opening_step);
    opened();
    while (!over && !session.run_for(pace)) {
      if (auto ok = state.save(session); !ok) return ok.error();
    }
  } catch (const error& e) {
    return e.as_failure();
  }
  return std::nullopt;
}

int exit_code_of(const run_options& o, const run_report& r, int signal) {
  if (r.outcome == run_outcome::failed) return exit_failed;
  if (signal == SIGINT) return exit_interrupted;
  if (signal == SIGTERM || signal == SIGHUP) return exit_terminated;
  const bool all_asked_for = o.batches && r.batches >= *o.batches;  // --batches stopped the run, as requested
  return r.outcome == run_outcome::stopped && !all_asked_for ? o.stopped_exit_code : exit_ok;
}

result<void> write_report(const run_options& o, const run_report& report) {
  if (o.files.report.empty()) return {};
  return replace_file(o.files.report, telemetry::as_json(report).dump(
                                          2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                                          "\n");
}

int tell_end(const run_options& o, const std::string& quarantine_file, const run_report& report, int signal) {
  if (auto ok = write_report(o, report); !ok) {
    failure why = ok.error();
    // What ended the run comes first: a full disk often refuses the report, too.
    if (report.error) why = {report.error->code, fmt::format("{}; nor could the report be written: {}", report.error->message, why.message), why.os_code};
    return refuse_with(exit_failed, why, o.json);
  }
  if (o.json) print_json(telemetry::as_json(report));
  if (!o.quiet) {
    tell_report(report, quarantine_file);
  } else if (report.error && !o.json) {
    say(styled(style::red, "error:") + " " + report.error->message);
  }
  if (signal != 0 && !o.quiet && o.state.empty() && report.outcome == run_outcome::stopped) say(position_not_saved("run"));
  if (!o.state.empty() && report.error && report.error->code == errc::state_mismatch && !o.json) {
    say(fmt::format("'{}' is the state of another run; give this run another --state, or remove the file to begin again",
                    printable(o.state)));
  }
  return exit_code_of(o, report, signal);
}

// ---- a run that cannot begin ------------------------------------------------------------------------------

/// Writes a report with the reason, for programs that read reports, such as `penstock launch`.
void report_refusal(const run_options& o, const std::string& session, const failure& why) {
  run_report report;
  report.session = session;
  report.outcome = run_outcome::failed;
  report.error = why;
  static_cast<void>(write_report(o, report));  // the error to report is `why`
}

/// The first mistake, in one line.
failure in_one_line(const config_file::rejection& refused) {
  const auto is_error = [](const config_file::diagnostic& d) {
    return d.level == config_file::severity::error;
  };
  const auto first = std::ranges::find_if(refused.diagnostics, is_error);
  const auto errors = std::ranges::count_if(refused.diagnostics, is_error);
  failure why{refused.code, "the config cannot be used", refused.os_code};
  if (first == refused.diagnostics.end()) return why;
  why.message = first->message;
  if (!first->where.origin.empty())
    why.message =
        first->where.line == 0
            ? fmt::format("{}: {}", printable(first->where.origin), first->message)
            : fmt::format("{}:{}: {}", printable(first->where.origin), first->where.line, first->message);
  if (errors > 1) why.message += fmt::format(" (the first of {} mistakes)", errors);
  return why;
}

int refuse_start(const run_options& o, const config& settings, exit_code code, const failure& why) {
  report_refusal(o, settings.name, why);
  return refuse_with(code, why, o.json);
}

/// Joins the group only to report the refusal, so that the other ranks do not wait for this one.
int refuse_start_of_rank(const run_options& o, const config& settings, exit_code code, const failure& why,
                         stop_signals& signals, launcher_link& launcher) {
  try {
    session_options options;
    options.join_group = true;
    options.cannot_begin = why;
    Session session(settings, options);
    std::optional<position_teller> teller;
    if (launcher.there())
      teller.emplace(launcher, session, settings.group.lost_after, position_teller::tells::life);
    const struct unresponsive_at_end {  // after this, no signal uses the destroyed session
      stop_signals& signals;
      ~unresponsive_at_end() { signals.ignore(); }
    } at_end{signals};
    signals.listen([&](int) { session.stop(end_after_second_signal, signals.asked_by()); });
    try {
      static_cast<void>(session.run_for(std::chrono::milliseconds::max()));
    } catch (const error&) {  // the error is `why`, or the group's first cause
    }
    session.close();
    teller.reset();
    signals.ignore();
    run_report report = session.report();
    report.outcome = run_outcome::failed;
    if (!report.error) report.error = why;
    const int told = tell_end(o, settings.quarantine.file, report, signals.received());
    return told == exit_failed ? static_cast<int>(code) : told;
  } catch (const error&) {  // this rank cannot join either
    return refuse_start(o, settings, code, why);
  }
}

/// If all ranks of a group got the same path, they share that file. A path that names the rank is for that rank alone.
run_state state_of(const run_options& o, const std::optional<launcher_place>& place, bool joins) {
  if (!place) return run_state(o.state);
  if (!joins || group::names_rank(o.state, place->rank))
    return run_state(group::file_of_rank(o.state, place->rank));
  return run_state(o.state, sharing_rank{place->rank, place->world_size});
}

int run(run_options o) {
  const auto state_every = parse_state_pace(o.state_every);
  if (!state_every) return refuse_with(exit_usage, state_every.error(), o.json);
  auto loaded = load(o.source);
  if (!loaded) {
    if (const auto place = rank_of_files()) o.files = files_of_rank(o.files, *place);
    if (!o.dry_run) report_refusal(o, {}, in_one_line(loaded.error()));
    return tell_rejection(loaded.error(), o.json);
  }
  if (!o.quiet) tell_warnings(*loaded);
  config settings = loaded->values;
  // A crash of the GPU owner does not end the run if the owner has its own process.
  if (!loaded->sources.contains("gpu.placement")) settings.gpu.placement = placement_rule::process;
  if (o.dry_run) return dry_run(settings, o.source.file, o.json);

  const auto joins = joins_group(*loaded);
  const auto place = rank_of_files(*loaded, joins.value_or(false));
  if (place) o.files = files_of_rank(o.files, *place);
  if (!joins) return refuse_start(o, settings, exit_config, joins.error());
  if (auto ok = session::check_alone(settings); !*joins && !ok)
    return refuse_start(o, settings, exit_config, ok.error());
  // Build the index before signals are handled, so that a signal ends this process. A rank of a launcher must send signs of life meanwhile,
  // so its session builds the index.
  if (!*joins && !place && !o.quiet && !o.json) index_with_bar(settings, notices_told::by_caller);
  stop_signals signals;
  launcher_link launcher;
  const auto refuse_here = [&](exit_code code, const failure& why) {
    return *joins ? refuse_start_of_rank(o, settings, code, why, signals, launcher)
                  : refuse_start(o, settings, code, why);
  };
  if (*joins && place) {
    if (auto ok = check_state_path(o.state, *place); !ok) return refuse_here(exit_usage, ok.error());
  }
  if (auto ok = hosts::read_hosts(settings.loader, true); !ok) return refuse_here(exit_config, ok.error());
  run_state state = state_of(o, place, *joins);
  if (auto ok = check_places(o.files, state); !ok)
    return refuse_here(ok.error().code == errc::usage ? exit_usage : exit_failed, ok.error());
  // Keeps other runs from writing these files until this process ends; the session locks what its sink writes.
  const auto report = lock_files("the report", {o.files.report});
  if (!report) {
    o.files.report.clear();  // the report file belongs to the other run
    return refuse_here(exit_failed, report.error());
  }
  const auto states = lock_files("the state", state.places());
  if (!states) return refuse_here(exit_failed, states.error());
  const auto begin = where_to_begin(launcher, state);
  if (!begin) return refuse_here(exit_failed, begin.error());
  const std::string resumed = state.resumed_from();
  const std::string appended = begin->state.empty() ? notice_of_journal(o.files.sink) : std::string();
  if (!o.quiet && !appended.empty()) say(appended);
  // The other ranks have ended: this one delivers the rest alone.
  if (begin->alone) settings.group.communicator = communicator_kind::none;
  if (launcher.there())
    settings.loader.start =
        start_rule::lazy;  // the launcher needs signs of life before the dataset is listed
  try {
    session_options options;
    // This process writes its report after the session's end, and a launcher writes its own after that.
    options.ends = launcher.there() ? session_scope::parent : session_scope::process;
    options.join_group = *joins && !begin->alone;
    options.digests = o.digest;
    if (o.batches) options.batches = *o.batches - std::min(*o.batches, begin->delivered);
    options.state = begin->state;
    options.sink = o.files.sink;
    options.sink_out = o.files.out;
    options.config_file = whole_path(o.source.file);
    options.files = files_by_kind(o.files, state.places());
    if (launcher.there()) options.files.erase("report");  // the launcher's report will contain it
    options.files.insert(begin->files.begin(), begin->files.end());
    Session session(settings, options);
    std::optional<position_teller> teller;
    if (launcher.there()) {
      session::expect_lost_processes(session);
      session::processes_lost(session, begin->lost);
      teller.emplace(launcher, session, settings.group.lost_after);
    }
    const auto left_behind = [file = state.file()] { return file->path().empty() ? position_not_saved("run") : file->left_behind(); };
    signals.listen([&](int times) { session.stop(time_to_end(times), signals.asked_by()); }, {.left_behind = left_behind});
    std::optional<failure> trouble;
    {
      std::optional<progress_display> display;
      if (!o.quiet)
        display.emplace(compared<session_status>([&session] { return session.status(); }, progress_line));
      trouble = deliver_all(session, state, *state_every, [&] {
        if (!o.quiet && !resumed.empty()) say(resumed);
      });
      if (trouble) session.stop(std::nullopt, "an error: " + trouble->message);
      session.close();
      teller.reset();
    }
    signals.ignore();
    run_report report = session.report();
    if (trouble) {
      report.outcome = run_outcome::failed;
      report.error = trouble;
    }
    if (!trouble) {
      if (auto ok = state.finish(session, signals.received() != 0); !ok)
        return refuse_with(exit_failed, ok.error(), o.json);
    }
    const int code = tell_end(o, settings.quarantine.file, report, signals.received());
    if (signals.received() != 0 && !o.quiet && !o.state.empty() && report.outcome == run_outcome::stopped) say(state.file()->left_behind());
    if (!o.quiet && !resumed.empty() && report.outcome == run_outcome::finished && report.batches == 0)
      say(state.next_after_the_end());
    return code;
  } catch (const error& e) {
    return refuse_start(o, settings, exit_failed, e.as_failure());
  }
}

}  // namespace

void add_run_command(verb_table& verbs) {
  const auto o = std::make_shared<run_options>();
  CLI::App* const verb = &verbs.add(
      {"run",
       verb_group::run,
       "load batches onto the device, as described by a config file",
       "Starts the workers, delivers every batch of every epoch to the sink and prints a report. "
       "Ctrl-C ends it cleanly (exit code 130); a second Ctrl-C ends it within two seconds. While it runs, "
       "the verbs for live sessions work on it; afterwards, `penstock events --last` and similar verbs show "
       "what it recorded. A run that `penstock stop` ended also exits with 0; --stopped-exit-code gives it "
       "another exit code, and the report's \"outcome\" distinguishes the two.",
       {{"penstock run photos.toml", "with a progress bar and a final report"},
        {"penstock run photos.toml --workers 8 --set sampler.batch_size=64",
         "override some keys of the file"},
        {"penstock run photos.toml --digest --json --quiet",
         "for scripts: the report, with a digest of the stream"},
        {"penstock run photos.toml --sink npy --out batches",
         "each batch as files, exactly as on the device"},
        {"penstock run photos.toml --state photos.state", "continue where an earlier run ended"}}},
      [o] { return run(*o); });
  add_run_options(*verb, *o);
}

}  // namespace penstock::cli
