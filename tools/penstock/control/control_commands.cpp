// restart, drain, scale, pause, resume and stop: an operator's orders to a session.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_places.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/control/session_end.hpp"
#include "tools/penstock/control/slow_stop.hpp"
#include "tools/penstock/control/stop_cost.hpp"
#include "tools/penstock/control/written_files.hpp"
#include "tools/penstock/group/group_verbs.hpp"
#include "tools/penstock/host_targets.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/status_words.hpp"

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr const char* automatic = "auto";
constexpr std::uint64_t workers_max = 1024;  // the maximum of [loader.limits] max

struct request_options {
  session_choice choice;
  std::string timeout;
  std::string target = "all";
  std::string workers;  // a number, "auto", or "host/NAME"
  std::optional<std::uint32_t> of_host{};
  bool now = false;
  bool wait = false;
};

/// The workers to restart or drain if the target names no single one. A restart also fills places that were drained or not restarted, but
/// no place beyond the size of the pool.
std::vector<std::uint32_t> workers_to(const std::string& verb, const json& status) {
  std::vector<std::uint32_t> workers;
  for (const json& w : status.at("workers")) {
    const json why = w.value("why_stopped", json());
    const bool comes_back = verb == "restart" && (why == "drained" || why == "not restarted");
    if (w.at("state") != "stopped" || comes_back) workers.push_back(w.at("id").get<std::uint32_t>());
  }
  return workers;
}

/// restart and drain: one worker, or all of them with one request each; restart also takes the GPU owner's
/// process.
int for_workers(request_options o, const std::string& verb) {
  const auto host = parse_host_target(o.target);
  if (host && !host->worker && verb == "drain") {
    return ask_session(o.choice, "penstock.order/1", {{"verb", verb}, {"host", host->host}}, std::nullopt,
                       [&](const json&) { say(o.target + ": drain requested"); });
  }
  if (const int no = name_worker(o.choice, o.target); no != exit_ok) return no;
  const auto meant = parse_target(o.target);
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (meant && meant->kind == target_kind::gpu && verb == "restart") {
    if (group.group)
      return order_group(o.choice, *group.group, {{"verb", verb}, {"gpu", true}},
                         "gpu: restart requested of");
    return ask_session(o.choice, "penstock.order/1", {{"verb", verb}, {"gpu", true}}, std::nullopt,
                       [&](const json&) { say("gpu: restart requested"); });
  }
  if (!meant || meant->kind == target_kind::gpu || meant->kind == target_kind::scheduler) {
    return no_such_target(o.choice, fmt::format("cannot {} '{}': use worker/N{}", verb, printable(o.target),
                                                verb == "restart" ? ", workers or gpu" : ", workers or host/NAME"));
  }
  if (group.group) {
    return change_workers_of_group(o.choice, *group.group, verb, o.now, [&](const json& status) {
      return meant->kind == target_kind::worker ? std::vector{meant->worker} : workers_to(verb, status);
    });
  }
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  std::vector<std::uint32_t> workers;
  if (meant->kind == target_kind::worker) {
    workers.push_back(meant->worker);
  } else {
    const session_answer answer = request(o.choice, socket.path, {{"verb", "status"}});
    if (answer.refused != exit_ok) return answer.refused;
    workers = workers_to(verb, answer.result);
    if (workers.empty())
      return no_such_target(o.choice, fmt::format("there is no worker to {}: all workers are stopped", verb));
  }
  for (const std::uint32_t worker : workers) {
    const session_answer answer = request(o.choice, socket.path, {{"verb", verb}, {"worker", worker}, {"now", o.now}});
    if (answer.refused != exit_ok) return answer.refused;
    if (!o.choice.as_json) say(fmt::format("worker/{}: {} requested", worker, verb));
  }
  if (o.choice.as_json) print_json("penstock.order/1", {{verb, workers}});
  return exit_ok;
}

int wait_for_the_end(const request_options& o, const session_end& end, const written_files& files, const std::string& ends,
                     steady_time until) {
  if (!end.wait_and_tell(until, o.choice.as_json)) {
    return refuse_with(
        exit_timed_out,
        {errc::timed_out, fmt::format("not stopped within {}: {}", o.timeout, end.what_is_left()), 0},
        o.choice.as_json);
  }
  const stop_cost cost = read_stop_cost(end.record(), ends);
  if (o.choice.as_json) {
    json stopped{{"stopped", true}};
    stopped.update(files.as_json());
    stopped["positions"] = files.positions();
    stopped.update(cost.as_json());
    print_json("penstock.order/1", stopped);
  } else {
    say("stopped");
    say_raw(cost.killed_for_people() + cost.position_for_people() + files.for_people() + cost.resume_for_people());
  }
  return exit_ok;
}

int stop(const request_options& o) {
  const auto longest = parse_timeout(o.timeout);
  if (!longest) return refuse_with(exit_usage, longest.error(), o.choice.as_json);
  if (*longest && !o.wait)
    return refuse_with(exit_usage, {errc::usage, "--timeout is the time limit of --wait: write both", 0},
                       o.choice.as_json);
  const auto begin = std::chrono::steady_clock::now();
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return stop_group(o.choice, *group.group, o.now, o.wait, *longest);
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  session_end end(socket.path);
  written_files files;
  const auto to_answer = std::min(longest->value_or(answer_deadline), answer_deadline);
  const session_answer answer = request(o.choice, socket.path, request_to_stop(o.now), to_answer);
  if (answer.refused != exit_ok) return answer.refused;
  end.says(answer.result);
  files.are(answer.result);
  if (o.wait) return wait_for_the_end(o, end, files, answer.result.value("ends", "session"), begin + longest->value_or(longest_wait));
  if (o.choice.as_json) {
    print_json("penstock.order/1", answer.result);
  } else {
    say("stopping");
    if (const auto status = ask(socket.path, {{"verb", "status"}}, look_deadline); status && status->value("ok", false))
      say_raw(held_up_by(status->at("result")));
    const std::string named = files.announced();
    if (!named.empty()) say_raw("these files are complete when it has ended (`penstock stop --wait` waits for that):\n" + named);
  }
  return exit_ok;
}

int scale_host(const request_options& o, const std::string& host) {
  if (!o.of_host) {
    return refuse_with(exit_usage, {errc::usage, fmt::format("WORKERS is missing: how many of its workers host/{} should run",
                                                             printable(host)), 0},
                       o.choice.as_json);
  }
  const json order{{"verb", "scale"}, {"host", host}, {"workers", *o.of_host}};
  return ask_session(o.choice, "penstock.order/1", order, answer_deadline,
                     [&](const json&) { say(fmt::format("scaling host/{} to {}", host, counted(*o.of_host, "worker"))); });
}

int scale(const request_options& o) {
  if (const auto host = parse_host_target(o.workers)) return scale_host(o, host->host);
  if (o.of_host)
    return refuse_with(exit_usage, {errc::usage, "two numbers: WORKERS is only for a host, as in `penstock scale host/NAME 4`", 0},
                       o.choice.as_json);
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  const bool tuned = o.workers == automatic;
  const std::uint64_t workers = tuned ? 0 : std::stoull(o.workers);
  const std::string told = tuned ? "tuning the number of workers" : "scaling to " + counted(workers, "worker");
  const json order{{"verb", "scale"}, {"workers", tuned ? json(automatic) : json(workers)}};
  if (group.group) return order_group(o.choice, *group.group, order, told + " in each of");
  return ask_session(o.choice, "penstock.order/1", order, answer_deadline, [&](const json&) { say(told); });
}

/// What is wrong with the text; empty if it is a number of workers, auto or a host.
std::string workers_or_host(const std::string& text) {
  const auto host = parse_host_target(text);
  if (text == automatic || (host && !host->worker)) return {};
  std::string trouble = trouble_with_number(text, {1, workers_max});
  if (!trouble.empty()) trouble += fmt::format(", {} or host/NAME", automatic);
  return trouble;
}

/// `unchanged`, `none_changed`: why there was nothing to do, for a session (without its name) and for a group.
std::function<int(const request_options&)> simple(const char* verb, const char* told, const char* unchanged, const char* none_changed) {
  return [=](const request_options& o) {
    const meant_group group = group_meant(o.choice);
    if (group.refused != exit_ok) return group.refused;
    if (group.group) return order_group(o.choice, *group.group, {{"verb", verb}}, told, fmt::format("{}: {}", group.group->name, none_changed));
    return ask_session(o.choice, "penstock.order/1", {{"verb", verb}}, answer_deadline, [&](const json& result) {
      const bool drained = result.value("drained", 0) > 0;
      say(fmt::format("{}{}", result.value("changed", true) ? told : fmt::format("the {} {}", words_for(kind_of_answer(result)).run, unchanged),
                      drained ? fmt::format("; all workers are drained: `penstock restart workers{}` brings them back", choice_in_words(o.choice)) : ""));
    });
  };
}

void add_changes(verb_table& verbs) {
  for (const bool restarts : {true, false}) {
    const std::string name = restarts ? "restart" : "drain";
    const auto [verb, o] = add_session_verb<request_options>(
        verbs,
        {name,
         verb_group::operate,
         restarts ? "replace workers once they have finished what they hold"
                  : "stop workers once they have finished what they hold",
         restarts
             ? "The worker finishes the batches that it holds, and a new process replaces it; --now kills it at once, for a sample "
               "that hangs. The stream does not change. An operator's restart does not count as a death and clears the "
               "worker's history, so even a failed worker comes back."
             : "The worker finishes the batches that it holds and exits; its place stays empty until it is "
               "restarted or the pool is scaled. The other workers take over; the stream does not change.",
         {{"penstock " + name + " worker/3", "one worker"},
          {"penstock " + name + " workers",
           restarts ? "all workers" : "all workers: the stream then stops until one is restarted"},
          {"penstock " + name + (restarts ? " gpu" : " host/alpha"),
           restarts ? "the GPU owner's process; what it has not delivered is uploaded again"
                    : "a loader host: it leaves this session"}}},
        [name](const request_options& given) { return for_workers(given, name); });
    add_group_choice(verb, o->choice);
    if (restarts) verb.add_flag("--now", o->now, "kill the worker instead of letting it finish; other workers load its batches");
    verb.add_option("TARGET", o->target, restarts ? "worker/N, workers or gpu" : "worker/N, workers or host/NAME")
        ->required();
  }
  const auto [scale_verb, scale_options] = add_session_verb<request_options>(
      verbs,
      {"scale",
       verb_group::operate,
       "change the number of workers",
       "From 1 to [loader.limits] max. Surplus workers finish what they hold and exit. The stream does not "
       "change. A number ends the tuning of [loader] workers = \"auto\"; auto starts it, even if the config names a number. With "
       "host/NAME: how many of its workers a loader host runs for this session, from 0 to what it was started with. With 0 it "
       "stays joined; drain makes it leave.",
       {{"penstock scale 6", "run six workers from now on"},
        {"penstock scale auto", "let the session find the number"},
        {"penstock scale host/alpha 4", "four of the workers of loader host alpha"},
        {"penstock scale 6 --group photos", "six in each rank of a group"}}},
      scale);
  add_group_choice(scale_verb, scale_options->choice);
  scale_verb.add_option("N", scale_options->workers, "how many workers, or auto; or host/NAME, followed by how many of its workers")
      ->type_name("N")
      ->transform(CLI::Validator(workers_or_host, ""))
      ->required();
  takes_whole_number(scale_verb.add_option("WORKERS", scale_options->of_host, "only after host/NAME"), {0, remote_workers_max});
}

void add_stream_verbs(verb_table& verbs) {
  const auto [pause_verb, pause_options] = add_session_verb<request_options>(
      verbs,
      {"pause",
       verb_group::operate,
       "stop handing out work",
       "Batches that are already loaded are still delivered; then everything waits for resume.",
       {{"penstock pause", "free the machine for a while"}}},
      simple("pause", "paused", "was already paused", "all ranks were already paused"));
  add_group_choice(pause_verb, pause_options->choice);
  const auto [resume_verb, resume_options] = add_session_verb<request_options>(
      verbs, {"resume", verb_group::operate, "hand out work again", "", {{"penstock resume", "end a pause"}}},
      simple("resume", "resumed", "was not paused", "no rank was paused"));
  add_group_choice(resume_verb, resume_options->choice);
  const auto [stop_verb, stop_options] = add_session_verb<request_options>(
      verbs,
      {"stop",
       verb_group::operate,
       "end a session cleanly",
       "Workers finish their current sample, batches on the device are delivered, and `run` writes its "
       "report and state. A worker that needs more than 10 s for its sample is killed; --now kills it at once, and its sample is not "
       "blamed.",
       {{"penstock stop", "within the deadline of [supervisor] shutdown"},
        {"penstock stop --wait --timeout 60s", "and return once the session is gone, with the files that it has written and their positions"},
        {"penstock stop --group photos", "all ranks of a group"},
        {"penstock stop --now", "without waiting for current samples"}}},
      stop);
  add_group_choice(stop_verb, stop_options->choice);
  stop_verb.add_flag("--now", stop_options->now, "do not wait for current samples");
  stop_verb.add_flag("--wait", stop_options->wait,
                     "return once the session is gone and the report of `run` is written; names the files");
  stop_verb.add_option("--timeout", stop_options->timeout, "with --wait: give up after this time")
      ->type_name("TIME");
}

}  // namespace

void add_control_commands(verb_table& verbs) {
  add_wait_command(verbs);
  add_changes(verbs);
  add_stream_verbs(verbs);
}

}  // namespace penstock::cli
