#include "tools/penstock/session_commands.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/session_link.hpp"
#include "tools/penstock/session_tables.hpp"
#include "tools/penstock/stack_names.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/verb_table.hpp"

#include <algorithm>
#include <limits>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds appearance_deadline = 3s;  // of a session that is just being started
constexpr auto look_again_after = 20ms;

struct request_options {
  session_choice choice;
  std::string wait_for = "ready";
  std::string timeout;
  std::string target = "all";
  std::uint32_t workers = 0;
  bool now = false;
  bool stacks = false;
  bool check = false;
};

int no_such_target(const request_options& o, const std::string& why) {
  return refuse_with(exit_no_target, {errc::usage, why, 0}, o.choice.as_json);
}

/// The workers of an answer to "status" that a target means.
json workers_meant(const json& status, const target& meant) {
  json some = json::array();
  for (const json& w : status.at("workers")) {
    if (meant.means_worker(w.at("id").get<std::uint32_t>())) some.push_back(w);
  }
  return some;
}

int status(const request_options& o) {
  const auto meant = parse_target(o.target);
  if (!meant)
    return no_such_target(
        o, fmt::format("'{}' is no target; there is: {}", printable(o.target), targets_in_words));
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  session_answer answer = request(o.choice, socket.path, {{"verb", "status"}});
  if (answer.refused != exit_ok) return answer.refused;
  json& s = answer.result;
  s["workers"] = workers_meant(s, *meant);
  if (meant->kind == target_kind::worker && s.at("workers").empty())
    return no_such_target(o, "there is no " + o.target);
  if (o.choice.as_json) {
    print_json(s);
  } else {
    print_raw(status_for_people(s, *meant, terminal_width(1)));
    if (const std::string next = hint_after_status(s); !next.empty()) say("next: " + next);
  }
  return o.check && (s.at("state") != "ok" || s.value("stalled", json()).is_object()) ? exit_not_met
                                                                                      : exit_ok;
}

/// `penstock run ... & penstock wait` must not depend on who is faster.
void wait_for_a_session(const session_choice& choice, std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  const auto there = [&] {
    if (!choice.socket.empty()) return control::connect_to(choice.socket).has_value();
    const auto all = control::find_sessions();
    return std::ranges::any_of(all, [&](const control::found_session& s) {
      return s.alive && (choice.session.empty() || s.name == choice.session);
    });
  };
  while (!there() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(look_again_after);
}

int wait(const request_options& o) {
  std::optional<std::chrono::milliseconds> deadline;
  if (!o.timeout.empty()) {
    const auto time = parse_duration(o.timeout);
    if (!time)
      return refuse_with(exit_usage, {errc::usage, "--timeout: " + time.error().message, 0},
                         o.choice.as_json);
    deadline = std::chrono::ceil<std::chrono::milliseconds>(*time);
  }
  const auto begin = std::chrono::steady_clock::now();
  wait_for_a_session(o.choice, deadline.value_or(appearance_deadline));
  if (deadline) {
    const auto gone = std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    deadline = std::max(*deadline - gone, std::chrono::milliseconds(0));
  }
  return ask_session(o.choice, {{"verb", "wait"}, {"for", o.wait_for}}, deadline,
                     [&](const json&) { say(o.wait_for); });
}

/// restart and drain: one worker, or all of them, one request each; restart the GPU owner's process too.
int for_workers(const request_options& o, const std::string& verb) {
  const auto meant = parse_target(o.target);
  if (meant && meant->kind == target_kind::gpu && verb == "restart") {
    return ask_session(o.choice, {{"verb", verb}, {"gpu", true}}, std::nullopt,
                       [&](const json&) { say("gpu: restart asked for"); });
  }
  if (!meant || meant->kind == target_kind::gpu || meant->kind == target_kind::scheduler) {
    return no_such_target(
        o, fmt::format("'{}' cannot be told to {}: write worker/N or workers", printable(o.target), verb));
  }
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  std::vector<std::uint32_t> workers;
  if (meant->kind == target_kind::worker) {
    workers.push_back(meant->worker);
  } else {
    const session_answer answer = request(o.choice, socket.path, {{"verb", "status"}});
    if (answer.refused != exit_ok) return answer.refused;
    for (const json& w : answer.result.at("workers")) {
      // A restart fills what was drained or not restarted too, but no place that the pool is too small for.
      const json why = w.value("why_stopped", json());
      const bool comes_back = verb == "restart" && (why == "drained" || why == "not restarted");
      if (w.at("state") != "stopped" || comes_back) workers.push_back(w.at("id").get<std::uint32_t>());
    }
    if (workers.empty())
      return no_such_target(o, fmt::format("there is no worker to {}: all of them are stopped", verb));
  }
  for (const std::uint32_t worker : workers) {
    const session_answer answer = request(o.choice, socket.path, {{"verb", verb}, {"worker", worker}});
    if (answer.refused != exit_ok) return answer.refused;
    if (!o.choice.as_json) say(fmt::format("worker/{}: {} asked for", worker, verb));
  }
  if (o.choice.as_json) print_json({{verb, workers}});
  return exit_ok;
}

/// With the names of functions: looked up here, since the session must not wait for a debugger's tool.
void print_stacks(const json& deaths) {
  for (const json& d : deaths) {
    print(fmt::format("\nworker/{} incarnation {}, {}:", d.at("worker").dump(), d.at("incarnation").dump(),
                      ending_of(d)));
    if (!d.at("wait_channel").is_null()) print("  it was " + d.at("wait_channel").get<std::string>());
    for (const std::string& frame : name_frames(d.at("stack").get<std::vector<std::string>>()))
      print("  " + frame);
    if (d.at("stack").empty()) print("  (it could not tell where it stood)");
  }
}

int deaths(const request_options& o) {
  return ask_session(o.choice, {{"verb", "deaths"}}, answer_deadline, [&](const json& result) {
    const json& all = result.at("deaths");
    if (all.empty()) return say("no worker died");
    print_raw(deaths_for_people(all, terminal_width(1)));
    if (o.stacks) print_stacks(all);
    say("next: " + hint_after_deaths(all));
  });
}

int sessions(const request_options& o) {
  json list = json::array();
  for (const auto& s : control::find_sessions()) {
    if (!s.alive) continue;
    list.push_back({{"session", s.name}, {"socket", s.path.string()}});
    if (!o.choice.as_json) print(fmt::format("{:<24} {}", s.name, s.path.string()));
  }
  const std::size_t removed = control::remove_dead_sockets();
  if (!o.choice.as_json && list.empty()) say("no session is live");
  if (!o.choice.as_json && removed > 0) say(fmt::format("removed {} sockets of dead sessions", removed));
  if (o.choice.as_json) print_json({{"sessions", std::move(list)}, {"removed", removed}});
  return exit_ok;
}

int stop(const request_options& o) {
  return ask_session(o.choice, {{"verb", "stop"}, {"now", o.now}}, answer_deadline,
                     [](const json&) { say("stopping"); });
}

int scale(const request_options& o) {
  return ask_session(
      o.choice, {{"verb", "scale"}, {"workers", o.workers}}, answer_deadline,
      [&](const json&) { say(fmt::format("scaling to {} worker{}", o.workers, o.workers == 1 ? "" : "s")); });
}

struct verb_place {
  CLI::App& verb;
  std::shared_ptr<request_options> options;
};

verb_place add_verb(verb_table& verbs, verb_facts facts, std::function<int(const request_options&)> act) {
  auto options = std::make_shared<request_options>();
  CLI::App& verb = verbs.add(std::move(facts), [options, act = std::move(act)] { return act(*options); });
  add_session_choice(verb, options->choice);
  return {verb, options};
}

std::function<int(const request_options&)> simple(const char* verb, const char* told) {
  return [=](const request_options& o) {
    return ask_session(o.choice, {{"verb", verb}}, answer_deadline, [&](const json&) { say(told); });
  };
}

void add_status(verb_table& verbs) {
  const auto place = add_verb(
      verbs,
      {"status",
       verb_group::operate,
       "how a live session stands",
       "One table: the session, its device, its workers with their last deaths. The target leaves lines out.",
       {{"penstock status", "the only live session"},
        {"penstock status worker/3 --json | jq .workers[0].current_sample", "what worker 3 is working on"},
        {"penstock status --check --session photos",
         "exit code 3 unless its state is ok and it moves, for scripts"}}},
      status);
  place.verb.add_flag("--check", place.options->check,
                      "exit 3 unless the state is ok and the stream is not stalled");
  place.verb.add_option("TARGET", place.options->target, "worker/N, workers, gpu, scheduler or all");
}

void add_wait(verb_table& verbs) {
  const auto place = add_verb(verbs,
                              {"wait",
                               verb_group::operate,
                               "wait until a session is ready or finished",
                               "Waits 3 s, or --timeout, for a session to appear at all. Exit code 3 if it "
                               "ends otherwise, 6 if the time "
                               "is over.",
                               {{"penstock run photos.toml & penstock wait --for=ready --timeout 60s",
                                 "start a run and go on when it works"},
                                {"penstock wait --for=finished", "until the last batch is delivered"}}},
                              wait);
  place.verb.add_option("--for", place.options->wait_for, "what to wait for")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"ready", "finished"}))
      ->capture_default_str();
  place.verb.add_option("--timeout", place.options->timeout, "give up after this time")->type_name("TIME");
}

void add_changes(verb_table& verbs) {
  for (const bool restarts : {true, false}) {
    const std::string name = restarts ? "restart" : "drain";
    const auto place = add_verb(
        verbs,
        {name,
         verb_group::operate,
         restarts ? "replace workers after what they hold" : "send workers home after what they hold",
         restarts
             ? "A worker that is restarted finishes the batches that it was given; another process takes its "
               "place. The stream does not change. Operators' restarts count for nothing and clear the "
               "worker's history: one that had failed for good comes back."
             : "A worker that is drained finishes the batches that it was given and stays away until it is "
               "restarted or the pool is scaled. The others take over; the stream does not change.",
         {{"penstock " + name + " worker/3", "one worker"},
          {"penstock " + name + " workers",
           restarts ? "all of them" : "all of them: the stream then stands still"},
          {"penstock " + name + (restarts ? " gpu" : " worker/0"),
           restarts ? "the GPU owner's process; what it had not delivered is uploaded again"
                    : "the first one"}}},
        [name](const request_options& o) { return for_workers(o, name); });
    place.verb
        .add_option("TARGET", place.options->target,
                    restarts ? "worker/N, workers or gpu" : "worker/N or workers")
        ->required();
  }
  const auto scale_place =
      add_verb(verbs,
               {"scale",
                verb_group::operate,
                "change the number of workers",
                "From 1 to [loader.limits] max. Workers that are too many finish what they hold. "
                "The stream does not change.",
                {{"penstock scale 6", "six workers from now on"}}},
               scale);
  takes_whole_number(scale_place.verb.add_option("N", scale_place.options->workers, "workers"),
                     {0, std::numeric_limits<std::uint32_t>::max()})
      ->required();
}

void add_stream_verbs(verb_table& verbs) {
  add_verb(verbs,
           {"pause",
            verb_group::operate,
            "hand out no new work",
            "What is loaded already is still delivered; then everything waits for resume.",
            {{"penstock pause", "let the machine breathe"}}},
           simple("pause", "paused"));
  add_verb(verbs,
           {"resume", verb_group::operate, "hand out work again", "", {{"penstock resume", "after a pause"}}},
           simple("resume", "resumed"));
  const auto stop_place = add_verb(verbs,
                                   {"stop",
                                    verb_group::operate,
                                    "end a session cleanly",
                                    "Workers finish the sample at hand, batches on the device are delivered, "
                                    "a run writes its report and state.",
                                    {{"penstock stop", "within the deadline of [supervisor] shutdown"},
                                     {"penstock stop --now", "without waiting for samples at hand"}}},
                                   stop);
  stop_place.verb.add_flag("--now", stop_place.options->now, "do not wait for samples at hand");
}

}  // namespace

void add_session_commands(verb_table& verbs) {
  add_status(verbs);
  const auto deaths_place = add_verb(
      verbs,
      {"deaths",
       verb_group::operate,
       "how workers ended",
       "The last 1000, oldest first: cause, signal or exit code, and the sample that the death is "
       "charged to.",
       {{"penstock deaths", "as a table"},
        {"penstock deaths --json | jq '.deaths[-1].last_output'", "the last words of the last one"}}},
      deaths);
  deaths_place.verb.add_flag("--stacks", deaths_place.options->stacks, "and where each stood when it died");
  add_wait(verbs);
  add_changes(verbs);
  add_stream_verbs(verbs);
  add_verb(verbs,
           {"sessions",
            verb_group::look,
            "list live sessions, remove the sockets of dead ones",
            "",
            {{"penstock sessions", "name and control socket of each"}}},
           sessions);
}

}  // namespace penstock::cli
