#include "tools/penstock/session_link.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_list.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/session_record.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/process_facts.hpp"
#include "runtime/telemetry/report_json.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <thread>

namespace penstock::cli {

using json = nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr auto suspension_polled_every = 20ms;

void add_session_choice(CLI::App& verb, session_choice& into) {
  verb.add_option("--session", into.session, "the session's name; optional if only one is live")
      ->type_name("NAME");
  verb.add_option("--socket", into.socket, "the session's control socket")->type_name("PATH");
  verb.add_option("--group", into.group)->type_name("NAME")->group("");  // hidden
  verb.add_flag("--json", into.as_json, "print JSON, even for errors");
}

void add_group_choice(CLI::App& verb, session_choice& into) {
  into.for_groups = true;
  verb.get_option("--group")
      ->description(
          "all ranks of this group: NAME of sessions NAME-rank0, NAME-rank1, ..., or JOB/NAME if several "
          "launches of NAME are live; optional if only this group is live")
      ->group(verb.get_option("--session")->get_group());
}

int no_such_target(const session_choice& choice, const std::string& why) {
  return refuse_target(why, choice.as_json);
}

int no_such_worker(const session_choice& choice, const std::string& target, const json& workers) {
  std::vector<std::uint32_t> ids;
  for (const json& w : workers) ids.push_back((w.is_object() ? w.at("id") : w).get<std::uint32_t>());
  std::ranges::sort(ids);
  return no_such_target(choice, fmt::format("there is no {}{}", printable(target), other_workers(ids)));
}

std::string not_a_target(const std::string& word, std::string_view more) {
  if (word.starts_with("host/"))
    return fmt::format("'{0}' is a loader host: only describe, drain and scale take one, as in `penstock describe {0}`", printable(word));
  if (word.starts_with("sample/"))
    return fmt::format("'{0}' is a sample: only describe takes one, as in `penstock describe {0}`", printable(word));
  for (const auto& s : control::find_sessions()) {
    if (s.alive && s.name == word)
      return fmt::format("'{}' is a session, not a target: write --session {}", printable(word),
                         printable(word));
  }
  return fmt::format("'{}' is not a target; targets are: {}{}", printable(word), targets_text, more);
}

namespace {

/// The shortest name that identifies the group among these.
std::string short_name(const live_group& group, const std::vector<live_group>& groups) {
  return groups_named(groups, group.name).size() == 1 ? group.name : group.full_name();
}

std::string names_of(const std::vector<live_group>& groups) {
  std::string names;
  for (const live_group& group : groups) names += (names.empty() ? "" : ", ") + short_name(group, groups);
  return names;
}

/// Refuses a whole group, for verbs or targets that need a single session.
chosen_socket refuse_all_of(const session_choice& choice, const live_group& group) {
  std::string ranks;
  for (const live_rank& r : group.ranks) ranks += (ranks.empty() ? "" : ", ") + r.session.name;
  const std::string why =
      fmt::format("this works on one session at a time: choose a rank of '{}' with {}--session ({})",
                  printable(choice.group), choice.last ? "--last " : "", ranks);
  return {{}, refuse_with(exit_usage, {errc::usage, why, 0}, choice.as_json)};
}

chosen_socket refuse_group(const session_choice& choice, const std::vector<live_group>& groups) {
  const std::vector<live_group> meant = groups_named(groups, choice.group);
  if (meant.empty()) return {{}, no_such_group(choice, groups)};
  if (meant.size() > 1) return {{}, refuse_ambiguous(choice, meant)};
  return refuse_all_of(choice, meant.front());
}

chosen_socket refuse_past_group(const session_choice& choice) {
  const auto group = past_group(choice.group);
  return group ? refuse_all_of(choice, *group) : chosen_socket{{}, no_such_past_group(choice)};
}

}  // namespace

int no_such_group(const session_choice& choice, const std::vector<live_group>& groups) {
  const std::string names = names_of(groups);
  const std::string why = fmt::format("there is no live group '{}'; live: {}", printable(choice.group),
                                      names.empty() ? "none" : names);
  const bool has_ended = !choice.reading_verb.empty() && past_group(choice.group);
  return refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json, has_ended ? typed_again("--last --group " + printable(choice.group)) : "");
}

int refuse_ambiguous(const session_choice& choice, const std::vector<live_group>& groups) {
  std::string choices;
  for (const live_group& group : groups)
    choices += fmt::format("{}--group {} ({})", choices.empty() ? "" : " or ", printable(group.full_name()),
                           counted(group.ranks.size(), "live rank"));
  const std::string why = fmt::format("{} groups named '{}' are live; choose one: {}", groups.size(),
                                      printable(groups.front().name), choices);
  return refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json);
}

chosen_socket choose(const session_choice& choice) {
  if (!choice.socket.empty()) return {choice.socket, exit_ok};
  if (means_past(choice)) return choice.session.empty() && !choice.group.empty() ? refuse_past_group(choice) : choose_past(choice);
  std::vector<control::found_session> live;
  for (auto& s : control::find_sessions()) {
    if (s.alive) live.push_back(std::move(s));
  }
  const auto no = [&](const std::string& why, const std::string& next) {
    return chosen_socket{{}, refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json, next)};
  };
  /// The session that is meant may have ended.
  const auto none_live = [&](const std::string& why, const std::string& next) {
    const std::string last = last_end_in_words(choice.session);
    return last.empty() ? no(why, next) : no(fmt::format("{}; {}", why, last), next_for_past(choice));
  };
  std::string names;
  std::vector<named_session> named;
  for (const auto& s : live) {
    names += (names.empty() ? "" : ", ") + s.name;
    named.push_back({s.name, s.path, s.rank});
  }
  if (!choice.session.empty()) {
    for (const auto& s : live) {
      if (s.name == choice.session) return {s.path, exit_ok};
    }
    const std::string why = "there is no live session '" + printable(choice.session) + "'";
    for (const auto& s : live) {
      const auto record = live_record_of(s.path, control::process_behind(s.path));
      if (record && record->session == choice.session)  // the name was already in use when the session started
        return no(fmt::format("{}; '{}', which was also started as '{}', is live", why, s.name, record->session), typed_again("--session " + s.name));
    }
    return none_live(fmt::format("{}; live: {}", why, names.empty() ? "none" : names), "penstock sessions");
  }
  const std::vector<live_group> groups = groups_among(named);
  if (!choice.group.empty()) return refuse_group(choice, groups);
  if (live.empty() && ::access(control::socket_folder().c_str(), R_OK | X_OK) != 0 && errno != ENOENT)
    return no(fmt::format("cannot look for sessions in {}: {}", control::socket_folder().string(),
                          std::generic_category().message(errno)),
              "penstock doctor");
  if (live.empty())
    return none_live("there is no live session in " + control::socket_folder().string(), "penstock run FILE");
  if (live.size() > 1 && choice.for_groups && !groups.empty()) {
    return no(
        fmt::format("several sessions are live, choose one with --session, or all ranks of a group with "
                    "--group ({}): {}",
                    names_of(groups), names),
        typed_again("--group " + short_name(groups.front(), groups)));
  }
  if (live.size() > 1) {
    return no(fmt::format("several sessions are live, choose one with --session: {}", names),
              typed_again("--session " + live.front().name));
  }
  return {live.front().path, exit_ok};
}

chosen_socket choose_to_show(const session_choice& choice) {
  chosen_socket chosen = choose(choice);
  if (chosen.refused == exit_ok) tell_last(choice, chosen.path);
  return chosen;
}

int refuse_unreached(const session_choice& choice, const failure& why) {
  return refuse_with(why.code == errc::timed_out ? exit_timed_out : exit_no_session, why, choice.as_json);
}

result<json> ask(const std::filesystem::path& session, json question,
                 std::optional<std::chrono::milliseconds> deadline) {
  if (control::is_record(session)) return ask_record(session, question);
  return control::ask(session, std::move(question), deadline);
}

std::string if_suspended(int pid) {
  if (pid <= 0 || process::wait_channel(pid) != suspended_channel) return "";
  return fmt::format("the session's process (pid {0}) is suspended (SIGSTOP); after `kill -CONT {0}` it carries out this request", pid);
}

namespace {

/// `record`: empty if the session writes none. Its last write shows since when the session is suspended: a running one writes every second.
std::string suspension(int pid, const std::filesystem::path& record) {
  if (if_suspended(pid).empty()) return "";
  std::error_code gone;
  const auto written = std::filesystem::last_write_time(record, gone);
  const auto ago = std::filesystem::file_time_type::clock::now() - written;
  const auto when = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now() - ago);
  const std::string state =
      gone ? "is suspended" : fmt::format("has been suspended since {} UTC", without_year(utc_for_people(telemetry::as_utc(when))));
  return fmt::format("the session's process (pid {0}) {1} (SIGSTOP); `kill -CONT {0}` resumes it", pid, state);
}

}  // namespace

std::string suspension_of(const std::filesystem::path& session) {
  return control::is_record(session) ? "" : suspension_of(session, control::process_behind(session));
}

std::string suspension_of(const std::filesystem::path& socket, int pid) {
  if (if_suspended(pid).empty()) return "";
  const auto record = live_record_of(socket, pid);
  return suspension(pid, record ? record->path : std::filesystem::path());
}

std::string suspension_of_record(const std::filesystem::path& record) {
  const std::string id = record.stem().string();
  int pid = 0;
  const std::size_t begin = id.rfind('-') + 1;
  std::from_chars(id.data() + begin, id.data() + id.size(), pid);
  return control::is_written(record) ? suspension(pid, record) : "";
}

namespace {

/// Whether the process stays suspended for that time. Does not connect: connections would fill the socket's backlog.
bool stays_suspended(int pid, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!if_suspended(pid).empty()) {
    if (std::chrono::steady_clock::now() >= until) return true;
    std::this_thread::sleep_for(suspension_polled_every);
  }
  return false;
}

/// A suspended session does not answer, and an order is carried out when it continues: no need to wait for long.
bool only_reads(const json& question) {
  const json verb = question.value("verb", json());
  return verb == "status" || verb == "why" || verb == "deaths" || verb == "pipeline" || verb == "logs" || verb == "events";
}

int refuse_suspended(const session_choice& choice, const std::filesystem::path& socket, int pid, const std::string& suspended) {
  failure why{errc::timed_out, "the session does not answer while it is suspended", 0};
  if (choice.as_json) why.message += ": " + suspended;
  const auto record = live_record_of(socket, pid);
  const std::string by_id = record ? "--session " + record->id : "";
  const std::string next = by_id.empty() ? "" : choice.reading_verb.empty() ? "penstock status " + by_id : typed_again(by_id);
  return refuse_with(exit_timed_out, why, choice.as_json, next);
}

}  // namespace

session_answer request(const session_choice& choice, const std::filesystem::path& socket, json question,
                       std::optional<std::chrono::milliseconds> deadline) {
  std::string suspended;
  if (!control::is_record(socket)) {
    const bool reads = only_reads(question);
    const int pid = control::process_behind(socket);
    suspended = reads ? suspension_of(socket, pid) : if_suspended(pid);
    if (!suspended.empty() && !choice.as_json) say(suspended);
    if (!suspended.empty() && reads && stays_suspended(pid, std::min(deadline.value_or(look_deadline), look_deadline)))
      return {{}, refuse_suspended(choice, socket, pid, suspended)};
  }
  auto answer = ask(socket, std::move(question), deadline);
  if (!answer) {
    failure why = std::move(answer.error());
    if (!suspended.empty() && choice.as_json) why.message += ": " + suspended;
    return {{}, refuse_unreached(choice, why)};
  }
  return understand(choice, *answer);
}

session_answer understand(const session_choice& choice, const json& answer) {
  if (answer.value("ok", false)) return {answer.at("result"), exit_ok};
  const json why = answer.value("error", json::object());
  if (choice.as_json) {
    print_json("penstock.error/1", {{"error", why}});
  } else {
    say(styled(style::red, "error:") + " " + why.value("message", "the session refused"));
  }
  return {{}, answer.value("exit", static_cast<int>(exit_refused))};
}

int ask_session(const session_choice& choice, std::string_view schema, json question,
                std::optional<std::chrono::milliseconds> deadline,
                const std::function<void(const json&)>& tell) {
  const chosen_socket socket = choose_to_show(choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer answer = request(choice, socket.path, std::move(question), deadline);
  if (answer.refused != exit_ok) return answer.refused;
  if (choice.as_json) {
    print_json(schema, answer.result);
  } else {
    tell(answer.result);
  }
  return exit_ok;
}

}  // namespace penstock::cli
