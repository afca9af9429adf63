// chaos: runs the same stream undisturbed and under faults, and compares the two with an independent checker.
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/chaos/batch_journal.hpp"
#include "tools/penstock/chaos/chaos_goal.hpp"
#include "tools/penstock/chaos/chaos_result.hpp"
#include "tools/penstock/chaos/fault_injector.hpp"
#include "tools/penstock/chaos/stream_check.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/config_source.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/stop_signals.hpp"
#include "tools/penstock/verb_table.hpp"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <sstream>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::uint64_t memory_max_least = 192U << 20U;
constexpr std::uint64_t faults_default = 100;
constexpr auto step = std::chrono::milliseconds(5);
constexpr auto look_every = std::chrono::milliseconds(100);
constexpr std::chrono::milliseconds status_deadline{300};
constexpr std::string_view kinds_default = "kill,segv,abort,stop,hang,exit,leak";

struct chaos_options {
  config_source source;
  std::string kinds;
  double rate = 2;
  std::optional<std::uint64_t> faults;
  std::string seconds;
  std::uint64_t seed = 1;
  bool json = false;
  bool quiet = false;
};

std::uint64_t most_private_memory(const session_status& now) {
  std::uint64_t most = 0;
  for (const worker_status& w : now.workers) {
    const auto facts = w.pid ? process::look_at(*w.pid) : std::nullopt;
    if (facts) most = std::max(most, facts->rss_anon_bytes);
  }
  return most;
}

/// How long a worker of our session has been loading its sample, in seconds. Only the control socket reports
/// that, so we connect to it like any client.
double longest_at_work(const std::string& session) {
  double longest = 0;
  for (const control::found_session& s : control::find_sessions()) {
    if (!s.alive || !s.name.starts_with(session)) continue;
    const auto answer = control::ask(s.path, {{"verb", "status"}}, status_deadline);
    if (!answer || !answer->value("ok", false) || answer->at("result").value("pid", 0) != ::getpid())
      continue;
    for (const json& w : answer->at("result").at("workers")) {
      if (const json& seconds = w.at("current_sample_seconds"); seconds.is_number())
        longest = std::max(longest, seconds.get<double>());
    }
  }
  return longest;
}

/// Detaches the fault injector from a session before the session is closed, even after an exception.
struct letting_go {
  fault_injector* enemy;
  std::atomic<Session*>& current;
  ~letting_go() {
    if (enemy != nullptr) enemy->leave();
    current = nullptr;
  }
};

/// Runs to the end of the stream in small steps. After each step, notes how many batches the session reports
/// as delivered, and then how many the journal has: in this order, so that every reported batch must be in
/// the journal.
void deliver(Session& session, const config& settings, fault_injector* enemy, const batch_journal& journal,
             playing& all) {
  std::uint64_t promised = 0;
  auto next_look = std::chrono::steady_clock::now();
  bool attacked = false;
  bool over = false;
  while (!over) {
    over = session.run_for(step);
    const session_status now = session.status();
    if (now.batches_delivered > promised) {
      promised = now.batches_delivered;
      all.promises.emplace_back(journal.bytes(), promised);
    }
    if (enemy != nullptr && promised > 0 && !std::exchange(attacked, true))
      enemy->attack(session, settings.loader.limits.memory.bytes);
    if (enemy != nullptr) continue;
    all.private_bytes = std::max(all.private_bytes, most_private_memory(now));
    if (const auto at = std::chrono::steady_clock::now(); at >= next_look) {
      all.slowest_sample = std::max(all.slowest_sample, longest_at_work(now.session));
      next_look = at + look_every;
    }
  }
}

playing play(const config& settings, fault_injector* enemy, std::atomic<Session*>& current) {
  auto journal = batch_journal::create();
  if (!journal) throw error(journal.error());
  playing all;
  session_options options;
  options.digests = true;
  options.sink = journal->sink();
  if (enemy != nullptr) options.on_event = [enemy](const event& e) { enemy->hear(e); };
  Session session(settings, options);
  current = &session;
  std::optional<failure> trouble;
  {
    const letting_go last{enemy, current};
    try {
      deliver(session, settings, enemy, *journal, all);
    } catch (const error& e) {
      trouble = e.as_failure();
    }
  }
  if (trouble) session.stop();
  session.close();
  all.report = session.report();
  if (trouble && !all.report.error) all.report.error = trouble;
  if (enemy != nullptr) enemy->learn(all.report.owner_deaths);
  auto delivered = journal->read();
  if (!delivered) throw error(delivered.error());
  all.delivered = std::move(*delivered);
  for (const epoch_report& e : all.report.epochs) all.digests.push_back(e.digest.value_or(""));
  for (const quarantine_report& q : all.report.quarantine) all.quarantined.insert(q.sample);
  return all;
}

/// A config's timeouts allow for slow storage, and waiting for each of them would take hours. Shortens them to what the undisturbed run
/// needs, and never lengthens them. Returns the changes as text.
std::string shorten_timeouts(config& settings, double slowest_sample) {
  constexpr nanoseconds least = std::chrono::seconds(2);
  constexpr double room = 5;  // timeouts are this many times the slowest sample seen
  const nanoseconds enough = std::max(
      least, std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(room * slowest_sample)));
  std::string changed;
  const auto shorten = [&](nanoseconds& value, nanoseconds to, const char* name) {
    if (value <= to) return;
    changed += fmt::format("{}{} {} (of {})", changed.empty() ? "" : ", ", name, duration_for_people(to),
                           duration_for_people(value));
    value = to;
  };
  shorten(settings.loader.hang.item_timeout, enough, "item_timeout");
  shorten(settings.loader.hang.heartbeat_timeout, enough, "heartbeat_timeout");
  shorten(settings.loader.restart.backoff.max, std::chrono::seconds(1), "backoff.max");
  settings.loader.restart.backoff.base =
      std::min(settings.loader.restart.backoff.base, settings.loader.restart.backoff.max);
  return changed;
}

// ---- the verb ---------------------------------------------------------------------------------------------

result<std::vector<chaos_kind>> parse_kinds(const std::string& text) {
  std::vector<chaos_kind> kinds;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const auto kind = chaos_kind_of(word);
    if (!kind)
      return refuse(errc::usage,
                    "--kinds: unknown fault '{}'; choose from kill, segv, abort, stop, hang, exit, leak, "
                    "owner-kill",
                    word);
    if (std::ranges::find(kinds, *kind) == kinds.end()) kinds.push_back(*kind);
  }
  if (kinds.empty()) return refuse(errc::usage, "--kinds is empty");
  return kinds;
}

result<fault_injector_settings> fault_injector_of(const chaos_options& o, const config& settings) {
  const bool own_process = settings.gpu.placement == placement_rule::process;
  auto kinds = parse_kinds(
      !o.kinds.empty() ? o.kinds : std::string(kinds_default) + (own_process ? ",owner-kill" : ""));
  if (!kinds) return tl::unexpected(std::move(kinds.error()));
  if (!(o.rate > 0 && o.rate <= 1000)) return refuse(errc::usage, "--rate must be above 0 and at most 1000");
  fault_injector_settings n;
  n.kinds = std::move(*kinds);
  n.rate = o.rate;
  n.seed = o.seed;
  n.places = settings.loader.limits.max;
  n.intensity = settings.loader.restart.intensity;
  n.max_attempts = settings.quarantine.max_attempts;
  n.faults = o.faults;
  if (!o.seconds.empty()) {
    const auto time = parse_time_option("--seconds", o.seconds, 0s, 24h * 365);
    if (!time) return tl::unexpected(time.error());
    n.time = *time;
  }
  if (!n.faults && !n.time) n.faults = faults_default;
  const bool owner = std::ranges::find(n.kinds, chaos_kind::owner_kill) != n.kinds.end();
  if (owner && !own_process)
    return refuse(errc::usage,
                  "--kinds: owner-kill needs [gpu] placement = \"process\"; here it is \"embedded\", so the "
                  "GPU owner is this program itself");
  return n;
}

int chaos(const chaos_options& o) {
  auto loaded = load(o.source);
  if (!loaded) return tell_rejection(loaded.error(), o.json);
  if (!o.quiet) tell_warnings(*loaded);
  config settings = loaded->values;
  // The default of `penstock run`.
  if (!loaded->sources.contains("gpu.placement")) settings.gpu.placement = placement_rule::process;
  auto wanted = fault_injector_of(o, settings);
  if (!wanted) return refuse_with(exit_usage, wanted.error(), o.json);
  stop_signals signals;
  if (o.quiet) log::set_level(log::level::off);
  if (o.quiet) settings.log.level = log_level::off;
  settings.loader.env["PENSTOCK_CHAOS"] = "1";
  settings.quarantine.file.clear();  // injected faults must not be recorded
  std::atomic<Session*> current{nullptr};
  std::atomic<bool> interrupted{false};
  signals.listen([&](int times) {
    interrupted = true;
    if (Session* s = current.load()) s->stop(times == 1 ? std::chrono::seconds(10) : std::chrono::seconds(2));
  });
  try {
    if (!o.quiet) say("goal: " + goal_of(*wanted));
    if (!o.quiet) say("the undisturbed run ...");
    const playing undisturbed = play(settings, nullptr, current);
    if (undisturbed.report.error) return refuse_with(exit_failed, *undisturbed.report.error, o.json);
    const stream_check check(undisturbed.delivered.batches);
    const bool leaks = std::ranges::find(wanted->kinds, chaos_kind::leak) != wanted->kinds.end();
    if (leaks) {
      // A leak has to reach the worker's limit; several gigabytes at once would be a different test.
      auto& limit = settings.loader.limits.memory.bytes;
      limit = std::min(limit, std::max(memory_max_least, 2 * undisturbed.private_bytes));
    }
    const std::string shorter = shorten_timeouts(settings, undisturbed.slowest_sample);
    if (!o.quiet) {
      say(fmt::format(
          "the undisturbed run: {} in {}", counted(undisturbed.report.samples, "sample"),
          duration_for_people(nanoseconds(static_cast<std::int64_t>(undisturbed.report.seconds * 1e9)))));
      if (!shorter.empty()) say("timeouts for this test: " + shorter);
    }
    fault_injector enemy(*wanted);
    chaos_sums sums;
    const auto begin = std::chrono::steady_clock::now();
    while (!interrupted && !sums.error && !enemy.satisfied()) {
      add(sums, check, undisturbed, play(settings, &enemy, current));
      if (o.quiet) continue;
      const std::uint64_t faults = enemy.faults().size();
      say(fmt::format("run {}: {}{}{}", sums.rounds, faults,
                      wanted->faults ? fmt::format(" of {}", counted(*wanted->faults, "fault"))
                      : faults == 1  ? " fault"
                                     : " faults",
                      time_left_of(*wanted, faults, std::chrono::steady_clock::now() - begin)));
    }
    signals.ignore();
    if (interrupted) return signals.received() == SIGINT ? exit_interrupted : exit_terminated;
    const chaos_result v = result_of(*wanted, undisturbed, check, sums, enemy.faults());
    if (o.json) {
      print_json(v.as_json);
    } else {
      tell(v);
    }
    return v.good ? exit_ok : exit_failed;
  } catch (const error& e) {
    return refuse_with(exit_failed, e.as_failure(), o.json);
  }
}

}  // namespace

void add_chaos_command(verb_table& verbs) {
  const auto o = std::make_shared<chaos_options>();
  CLI::App& verb = verbs.add(
      {"chaos",
       verb_group::look,
       "inject faults into a run and compare the streams",
       "Runs the config's stream once undisturbed, then repeatedly with faults that hit workers and the GPU "
       "owner's process at random moments, until enough faults have been injected. A checker that is "
       "independent of the runtime compares every batch that the sink received with the undisturbed run. The "
       "exit code is 0 only if no batch was lost, duplicated, reordered or stale, no sample was wrongly "
       "quarantined, and all digests are equal.\n\n"
       "kill, segv, abort and stop are signals to a worker; the worker program itself carries out hang, exit "
       "and leak, because PENSTOCK_CHAOS=1 is in its environment; owner-kill is "
       "SIGKILL to the GPU owner's process once it has delivered something. By default all of them are used; "
       "owner-kill only if the owner has its own process, that is, unless [gpu] placement is "
       "\"embedded\".\n\n"
       "Limits are lowered for the test: for leaks, [loader.limits] memory to twice the most that a worker "
       "used; the timeouts of [loader.hang] to five times the slowest sample, but not below 2s. The "
       "sacrificial worker is never hit, because a sample that kills its worker there is quarantined.\n\n"
       "The time of --seconds begins after the undisturbed run. When it is over, the run in progress continues to its end without faults, because "
       "only whole streams can be compared. This takes at most as long as one run.",
       {{"penstock chaos photos.toml --faults 200", "test your own pipeline"},
        {"penstock chaos photos.toml --kinds kill,stop --rate 5 --seconds 60s --seed 7 --json",
         "for scripts"}}},
      [o] { return chaos(*o); });
  add_stream_options(verb, o->source);
  add_config_shorthands(verb, o->source);
  verb.add_option(
          "--kinds", o->kinds,
          "faults, separated by commas: kill, segv, abort, stop, hang, exit, leak, owner-kill; all by "
          "default")
      ->type_name("KINDS");
  verb.add_option("--rate", o->rate, "faults a second, on average")->type_name("N")->capture_default_str();
  takes_whole_number(verb.add_option("--faults", o->faults, "end after N faults; 100 without --seconds"),
                     {1, count_max});
  verb.add_option("--seconds", o->seconds, "inject faults for this time; the run in progress then ends without faults")->type_name("TIME");
  takes_whole_number(verb.add_option("--seed", o->seed, "seed for times, victims and kinds"),
                     {0, std::numeric_limits<std::uint64_t>::max()})
      ->capture_default_str();
  verb.add_flag("--json", o->json, "print the result as one JSON object");
  verb.add_flag("--quiet", o->quiet, "no progress");
}

}  // namespace penstock::cli
