#include "tools/penstock/session_commands.hpp"

#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "tools/penstock/output.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds answer_deadline = 10s;
constexpr std::chrono::milliseconds appearance_deadline = 3s;  // of a session that is just being started
constexpr auto look_again_after = 20ms;

/// Which session is meant.
struct session_choice {
  std::string session;
  std::string socket;
  bool as_json = false;
};

void add_choice(CLI::App& verb, session_choice& into) {
  verb.add_option("--session", into.session, "the session's name; not needed when only one is live")
      ->type_name("NAME");
  verb.add_option("--socket", into.socket, "the session's control socket")->type_name("PATH");
  verb.add_flag("--json", into.as_json, "one JSON object on stdout");
}

struct chosen_socket {
  std::filesystem::path path;
  int refused = exit_ok;  // already told
};

chosen_socket choose(const session_choice& choice) {
  if (!choice.socket.empty()) return {choice.socket, exit_ok};
  std::vector<control::found_session> live;
  for (auto& s : control::find_sessions()) {
    if (s.alive) live.push_back(std::move(s));
  }
  const auto no = [&](const std::string& why) {
    return chosen_socket{{}, refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json)};
  };
  std::string names;
  for (const auto& s : live) names += (names.empty() ? "" : ", ") + s.name;
  if (!choice.session.empty()) {
    for (const auto& s : live) {
      if (s.name == choice.session) return {s.path, exit_ok};
    }
    return no(
        fmt::format("no session '{}' is live; live: {}", choice.session, names.empty() ? "none" : names));
  }
  if (live.empty()) return no("no session is live in " + control::socket_folder().string());
  if (live.size() > 1)
    return no(fmt::format("several sessions are live, name one with --session: {}", names));
  return {live.front().path, exit_ok};
}

/// Asks and tells what went wrong; the result of a good answer goes to `tell`.
int ask_session(const session_choice& choice, json request, std::optional<std::chrono::milliseconds> deadline,
                const std::function<void(const json&)>& tell) {
  const chosen_socket socket = choose(choice);
  if (socket.refused != exit_ok) return socket.refused;
  const auto answer = control::ask(socket.path, std::move(request), deadline);
  if (!answer) {
    const exit_code code = answer.error().code == errc::timed_out ? exit_timed_out : exit_no_session;
    return refuse_with(code, answer.error(), choice.as_json);
  }
  if (answer->value("ok", false)) {
    const json& result = answer->at("result");
    if (choice.as_json) {
      print_json(result);
    } else {
      tell(result);
    }
    return exit_ok;
  }
  const json why = answer->value("error", json::object());
  if (choice.as_json) {
    print_json({{"error", why}});
  } else {
    say(styled(style::red, "error:") + " " + why.value("message", "the session refused"));
  }
  return answer->value("exit", static_cast<int>(exit_refused));
}

// ---- tables
// --------------------------------------------------------------------------------------------------

std::string text_of(const json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string last_death_of(const json& worker) {
  const json& d = worker.at("last_death");
  if (d.is_null()) return "-";
  const std::string how = !d.at("signal").is_null() ? text_of(d.at("signal")) : text_of(d.at("cause"));
  return d.at("sample").is_null() ? how : how + " on " + text_of(d.at("sample"));
}

void tell_status(const json& s) {
  print(fmt::format("{}  {}  pid {}  epoch {}  {} batches, {} samples delivered", text_of(s.at("session")),
                    text_of(s.at("state")), text_of(s.at("pid")), text_of(s.at("epoch")),
                    text_of(s.at("batches_delivered")), text_of(s.at("samples_delivered"))));
  const json& gpu = s.at("gpu");
  print(fmt::format("gpu  {}  {}  {}", text_of(gpu.at("state")), text_of(gpu.at("name")),
                    text_of(gpu.at("placement"))));
  print(fmt::format("{:<12}{:<12}{:>8}{:>10}{:>9}{:>10}  {}", "worker", "state", "pid", "restarts", "samples",
                    "memory", "last death"));
  for (const json& w : s.at("workers")) {
    print(fmt::format("{:<12}{:<12}{:>8}{:>10}{:>9}{:>10}  {}", "worker/" + text_of(w.at("id")),
                      text_of(w.at("state")), text_of(w.at("pid")), text_of(w.at("restarts")),
                      text_of(w.at("samples")), bytes_for_people(w.at("rss_bytes").get<std::uint64_t>()),
                      last_death_of(w)));
  }
  if (s.at("failed") != 0 || s.at("quarantined") != 0) {
    print(fmt::format("{} samples failed, {} quarantined", text_of(s.at("failed")),
                      text_of(s.at("quarantined"))));
  }
}

void tell_deaths(const json& result) {
  for (const json& d : result.at("deaths")) {
    print(fmt::format("worker/{}  pid {}  {}  {}{}", text_of(d.at("worker")), text_of(d.at("pid")),
                      text_of(d.at("cause")),
                      d.at("signal").is_null() ? "exit " + text_of(d.at("code")) : text_of(d.at("signal")),
                      d.at("sample").is_null()
                          ? ""
                          : "  sample " + text_of(d.at("sample")) + " (" + text_of(d.at("path")) + ")"));
  }
}

// ---- verbs
// ---------------------------------------------------------------------------------------------------

struct request_options {
  session_choice choice;
  std::string wait_for = "ready";
  std::string timeout;
  std::string target;
  std::uint32_t workers = 0;
  bool now = false;
  bool check = false;
};

/// "worker/3" as a number; nothing for any other target.
std::optional<std::uint32_t> worker_in(const std::string& target) {
  constexpr std::string_view prefix = "worker/";
  if (!target.starts_with(prefix)) return std::nullopt;
  std::uint32_t number = 0;
  const char* end = target.data() + target.size();
  const auto [rest, status] = std::from_chars(target.data() + prefix.size(), end, number);
  if (status != std::errc{} || rest != end) return std::nullopt;
  return number;
}

int status(const request_options& o) {
  std::string state;
  const int code = ask_session(o.choice, {{"verb", "status"}}, answer_deadline, tell_status);
  if (code != exit_ok || !o.check) return code;
  request_options quiet = o;
  quiet.choice.as_json = false;
  static_cast<void>(ask_session(quiet.choice, {{"verb", "status"}}, answer_deadline,
                                [&](const json& s) { state = text_of(s.at("state")); }));
  return state == "ok" ? exit_ok : exit_not_met;
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

int for_worker(const request_options& o, const char* verb) {
  const auto worker = worker_in(o.target);
  if (!worker) {
    return refuse_with(exit_no_target,
                       {errc::usage, fmt::format("'{}' is no worker: write worker/N", o.target), 0},
                       o.choice.as_json);
  }
  return ask_session(o.choice, {{"verb", verb}, {"worker", *worker}}, answer_deadline,
                     [&](const json&) { say(fmt::format("{}: {} asked for", o.target, verb)); });
}

int sessions(const request_options& o) {
  json list = json::array();
  for (const auto& s : control::find_sessions()) {
    if (!s.alive) continue;
    list.push_back({{"session", s.name}, {"socket", s.path.string()}});
    if (!o.choice.as_json) print(fmt::format("{:<24} {}", s.name, s.path.string()));
  }
  const std::size_t removed = control::remove_dead_sockets();
  if (o.choice.as_json) print_json({{"sessions", std::move(list)}, {"removed", removed}});
  if (!o.choice.as_json && removed > 0) say(fmt::format("removed {} sockets of dead sessions", removed));
  return exit_ok;
}

using action = std::function<int(const request_options&)>;

struct verb_place {
  CLI::App* verb;
  std::shared_ptr<request_options> options;
};

verb_place add_verb(CLI::App& app, std::function<int()>& chosen, const std::string& name,
                    const std::string& help, action act) {
  auto options = std::make_shared<request_options>();
  CLI::App* verb = app.add_subcommand(name, help);
  add_choice(*verb, options->choice);
  verb->callback(
      [options, act = std::move(act), &chosen] { chosen = [options, act] { return act(*options); }; });
  return {verb, options};
}

action simple(const char* verb, const char* told) {
  return [=](const request_options& o) {
    return ask_session(o.choice, {{"verb", verb}}, answer_deadline, [&](const json&) { say(told); });
  };
}

}  // namespace

void add_session_commands(CLI::App& app, std::function<int()>& chosen) {
  const auto status_verb = add_verb(app, chosen, "status", "how a live session stands", status);
  status_verb.verb->add_flag("--check", status_verb.options->check, "exit 3 unless the state is ok");

  const auto wait_verb = add_verb(app, chosen, "wait", "wait until a session is ready or finished", wait);
  wait_verb.verb->add_option("--for", wait_verb.options->wait_for, "ready or finished")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"ready", "finished"}))
      ->capture_default_str();
  wait_verb.verb->add_option("--timeout", wait_verb.options->timeout, "give up after this time, exit 6")
      ->type_name("TIME");

  const auto stop_verb = add_verb(app, chosen, "stop", "end a session cleanly", [](const request_options& o) {
    return ask_session(o.choice, {{"verb", "stop"}, {"now", o.now}}, answer_deadline,
                       [](const json&) { say("stopping"); });
  });
  stop_verb.verb->add_flag("--now", stop_verb.options->now, "do not wait for samples at hand");

  add_verb(app, chosen, "pause", "hand out no new work", simple("pause", "paused"));
  add_verb(app, chosen, "resume", "hand out work again", simple("resume", "resumed"));
  add_verb(app, chosen, "deaths", "how workers ended", [](const request_options& o) {
    return ask_session(o.choice, {{"verb", "deaths"}}, answer_deadline, tell_deaths);
  });

  const auto scale_verb =
      add_verb(app, chosen, "scale", "change the number of workers", [](const request_options& o) {
        return ask_session(o.choice, {{"verb", "scale"}, {"workers", o.workers}}, answer_deadline,
                           [&](const json&) { say(fmt::format("scaling to {} workers", o.workers)); });
      });
  scale_verb.verb->add_option("N", scale_verb.options->workers, "workers")->required();

  for (const char* verb : {"restart", "drain"}) {
    const auto place = add_verb(
        app, chosen, verb,
        verb[0] == 'r' ? "replace a worker after what it holds" : "send a worker home after what it holds",
        [verb](const request_options& o) { return for_worker(o, verb); });
    place.verb->add_option("TARGET", place.options->target, "worker/N")->required();
  }
  add_verb(app, chosen, "sessions", "list live sessions, remove the sockets of dead ones", sessions);
}

}  // namespace penstock::cli
