// wait: until a session is ready, has finished or has ended.
#include "runtime/base/text.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/control/session_end.hpp"
#include "tools/penstock/group/asked_ranks.hpp"
#include "tools/penstock/group/group_wait.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <algorithm>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds appearance_deadline = 3s;  // for a session that is just starting
constexpr auto appearance_polled_every = 20ms;

struct wait_options {
  session_choice choice;
  std::string wait_for = "ready";
  std::string timeout;
};

bool session_is_there(const session_choice& choice) {
  if (!choice.socket.empty()) return control::connect_to(choice.socket).has_value();
  if (!choice.group.empty()) return group_is_there(choice.group);
  return std::ranges::any_of(control::find_sessions(), [&](const control::found_session& s) {
    return s.alive && (choice.session.empty() || s.name == choice.session);
  });
}

/// `penstock run ... & penstock wait` must work whichever of the two starts first.
void wait_for_a_session(const session_choice& choice, std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (!session_is_there(choice) && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(appearance_polled_every);
}

/// What the session's record says, if the session has left one.
std::string how_it_ended(const std::filesystem::path& socket) {
  const std::string words = last_end_in_words(socket.stem().string());
  return words.empty() ? "" : ": " + words;
}

/// Prints why the wait failed: the session is still running, or it is gone.
int tell_what_became_of_it(const wait_options& o, const std::filesystem::path& socket) {
  if (const auto now = control::ask(socket, {{"verb", "status"}}, look_deadline);
      now && now->value("ok", false)) {
    const json& s = now->at("result");
    return refuse_with(
        exit_timed_out,
        {errc::timed_out,
         fmt::format("the session was not {} within {}: it is still running ({}, {})", o.wait_for, o.timeout, s.value("state", "?"), position_of(s)),
         0},
        o.choice.as_json);
  }
  const auto connected = control::connect_to(socket);
  const bool there = connected || connected.error().code == errc::timed_out;
  const std::string suspended = there ? suspension_of(socket) : "";
  return refuse_with(there ? exit_timed_out : exit_no_session,
                     {there ? errc::timed_out : errc::io,
                      there ? fmt::format("the session was not {} within {}: {}", o.wait_for, o.timeout,
                                          suspended.empty() ? "it exists but does not answer" : suspended)
                            : fmt::format("the session ended before it reported being {}{}", o.wait_for,
                                          how_it_ended(socket)),
                      0},
                     o.choice.as_json);
}

// ---- waiting for a session's end

int tell_its_end(const session_choice& choice, const json& about) {
  if (choice.as_json) {
    json told{{"schema", "penstock.wait/1"}, {"waited_for", "ended"}};
    told.update(about);
    print_json(told);
    return exit_ok;
  }
  const bool recorded = about.contains("ended");
  print("ended: " + (recorded ? end_in_words(about) : text_of(about.at("outcome"))));
  if (recorded && !about.at("failure").is_string()) print(text_of(about.at("reason")));
  return exit_ok;
}

/// The outcome; empty if the session does not end within this time.
std::optional<json> end_of(const std::filesystem::path& socket, std::optional<std::chrono::milliseconds> deadline,
                           std::chrono::steady_clock::time_point until) {
  session_end end(socket);
  const auto answer = control::ask(socket, {{"verb", "wait"}, {"for", "ended"}}, deadline);
  end.says(answer ? answer->value("result", json::object()) : json::object());
  if (!end.wait_until(until)) return std::nullopt;
  if (const auto record = record_of(socket, end.pid())) {
    if (const auto past = read_past(*record)) return past->summary();
  }
  return json{{"outcome", answer ? answer->value("result", json::object()).value("outcome", "died") : "died"}};
}

/// The ranks of a group that has ended.
int tell_ended_group(const session_choice& choice, const live_group& group) {
  json all{{"schema", "penstock.wait/1"}, {"waited_for", "ended"}};
  all.update(head_of(group));
  for (const live_rank& r : group.ranks) {
    const auto past = read_past(r.session.socket);
    const json about = past ? past->summary() : json{{"outcome", "died"}};
    all["ranks"].push_back({{"rank", r.rank}, {"session", r.session.name}, {"outcome", about.at("outcome")}});
    if (!choice.as_json) print(fmt::format("rank {} ({}) has ended: {}", r.rank, r.session.name, text_of(about.at("outcome"))));
  }
  if (choice.as_json) print_json(all);
  return exit_ok;
}

/// The exit code if the session has already ended and no session of that name is running. Empty if there is no such session.
std::optional<int> ended_already(const session_choice& choice) {
  if (!choice.socket.empty() || session_is_there(choice)) return std::nullopt;
  if (!choice.group.empty()) {
    const auto past = past_group(choice.group);
    return past ? std::optional(tell_ended_group(choice, *past)) : std::nullopt;
  }
  const auto about = last_ended(choice.session);
  return about ? std::optional(tell_its_end(choice, *about)) : std::nullopt;
}

// ---- the verb

int wait(const wait_options& o) {
  const auto given = parse_timeout(o.timeout);
  if (!given) return refuse_with(exit_usage, given.error(), o.choice.as_json);
  std::optional<std::chrono::milliseconds> deadline = *given;
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + deadline.value_or(longest_wait);
  const bool for_the_end = o.wait_for == "ended";
  if (for_the_end) {
    if (const auto told = ended_already(o.choice)) return *told;
  }
  wait_for_a_session(o.choice, deadline.value_or(appearance_deadline));
  if (deadline) {
    const auto gone = std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    deadline = std::max(*deadline - gone, std::chrono::milliseconds(0));
  }
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return wait_for_group(o.choice, *group.group, o.wait_for, deadline);
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) {
    if (socket.refused == exit_no_session && !o.choice.as_json) {
      const std::string words = last_end_in_words(o.choice.session);
      if (!words.empty()) {
        say("the last one: " + words);
      } else if (!o.choice.session.empty()) {
        say(fmt::format("'{}' has already ended, or was never started", printable(o.choice.session)));
      }
    }
    return socket.refused;
  }
  if (for_the_end) {
    const auto about = end_of(socket.path, deadline, until);
    return about ? tell_its_end(o.choice, *about) : tell_what_became_of_it(o, socket.path);
  }
  session_end end(socket.path);
  const auto answer = control::ask(socket.path, {{"verb", "wait"}, {"for", o.wait_for}}, deadline);
  if (!answer) return tell_what_became_of_it(o, socket.path);
  // Wait for the process as well, so that its report exists.
  if (o.wait_for == "finished") {
    end.says(answer->value("ok", false) ? answer->at("result") : answer->value("error", json::object()));
    if (!end.wait_until(until))
      return refuse_with(exit_timed_out,
                         {errc::timed_out,
                          fmt::format("not {} within {}: {}", o.wait_for, o.timeout, end.what_is_left()), 0},
                         o.choice.as_json);
  }
  const session_answer told = understand(o.choice, *answer);
  if (told.refused != exit_ok) return told.refused;
  if (o.choice.as_json) {
    print_json(told.result);
  } else {
    say(o.wait_for);
  }
  return exit_ok;
}

}  // namespace

void add_wait_command(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<wait_options>(
      verbs,
      {"wait",
       verb_group::operate,
       "wait until a session is ready, has finished or has ended",
       "Waits up to 3 s, or --timeout, for a session to appear. Exit code 3 if it ends without reaching that "
       "state, 6 if it is still running after the timeout, 5 if no session answers.\n\n"
       "--for=ended returns once the session has ended in any way, and says how; its exit code is then 0. If no such "
       "session is running, it returns at once with the outcome of the last one that has ended, and exits with 5 if there is none.",
       {{"penstock run photos.toml & penstock wait --for=ready --timeout 60s",
         "start a run and continue once it is ready"},
        {"penstock wait --for=finished", "wait until the last batch is delivered and the report written"},
        {"penstock wait --for=ended --session photos --json | jq -r .outcome", "finished, stopped, failed or died"},
        {"penstock wait --group photos", "until all ranks of a group are ready"}}},
      wait);
  add_group_choice(verb, o->choice);
  verb.add_option("--for", o->wait_for, "the state to wait for")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"ready", "finished", "ended"}))
      ->capture_default_str();
  verb.add_option("--timeout", o->timeout, "give up after this time")->type_name("TIME");
}

}  // namespace penstock::cli
