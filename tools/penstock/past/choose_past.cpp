#include "tools/penstock/past/choose_past.hpp"

#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/past/past_session.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;
using control::found_record;
using namespace std::chrono_literals;

constexpr auto record_deadline = 5s;  // how long after closing its socket a session may complete its record
constexpr auto record_polled_every = 20ms;
constexpr double told_status_age = 2;  // seconds

/// The records of ended sessions, the last one first. A session writes to its record for the last time when it ends.
std::vector<found_record> ended_records() {
  std::vector<std::pair<std::filesystem::file_time_type, found_record>> dated;
  for (found_record& r : control::find_records()) {
    std::error_code gone;
    const auto written = std::filesystem::last_write_time(r.path, gone);
    if (!r.live && !gone) dated.emplace_back(written, std::move(r));
  }
  std::ranges::stable_sort(dated, std::ranges::greater(), [](const auto& one) { return one.first; });
  std::vector<found_record> all;
  for (auto& one : dated) all.push_back(std::move(one.second));
  return all;
}

/// The session of this name that ended last; without a name, the last of all.
std::optional<found_record> last_record(const std::string& name) {
  for (found_record& r : ended_records()) {
    if (name.empty() || r.session == name) return std::move(r);
  }
  return std::nullopt;
}

std::optional<json> summary_of(const found_record& r) {
  const auto past = read_past(r.path);
  if (!past) return std::nullopt;  // the record was removed meanwhile
  return past->summary();
}

std::optional<json> entry_of(const found_record& r) {
  const auto summary = summary_of(r);
  if (!summary) return std::nullopt;
  json about{{"id", r.id}};
  about.update(*summary);
  return about;
}

}  // namespace

void add_past_choice(CLI::App& verb, session_choice& into) {
  into.reading_verb = verb.get_name();
  verb.add_flag("--last", into.last,
                "the session that ended last; with --session NAME, the one of that name that ended last. "
                "--session also accepts the ID of an ended session (`penstock sessions --ended`)")
      ->group(verb.get_option("--session")->get_group());
}

bool means_past(const session_choice& choice) {
  return !choice.reading_verb.empty() && choice.socket.empty() &&
         (choice.last || choice.session.find('@') != std::string::npos);
}

chosen_socket choose_past(const session_choice& choice) {
  const auto no = [&](const std::string& why) {
    return chosen_socket{{}, refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json, "penstock sessions --ended")};
  };
  if (choice.session.find('@') == std::string::npos) {
    const auto last = last_record(choice.session);
    if (last) return {last->path, exit_ok};
    return no(choice.session.empty()
                  ? "there is no record of a session of this user"
                  : fmt::format("there is no record of an ended session '{}'", printable(choice.session)));
  }
  for (const found_record& r : control::find_records()) {
    if (r.id != choice.session) continue;
    if (!r.live) return {r.path, exit_ok};
    if (const std::string suspended = suspension_of_record(r.path); !suspended.empty()) {
      if (!choice.as_json) say(suspended);
      return {r.path, exit_ok};
    }
    return no(fmt::format("'{}' is still running: --session {} reaches it", printable(r.id), printable(r.session)));
  }
  return no(fmt::format("there is no record of '{}'; `penstock sessions --ended` lists them",
                        printable(choice.session)));
}

std::optional<live_group> past_group(const std::string& name) {
  std::vector<named_session> ended;
  std::set<std::tuple<std::string, std::string, std::uint32_t>> known;
  std::optional<std::pair<std::string, std::string>> found;  // the group's name and job
  for (found_record& r : ended_records()) {                  // the session that ended last comes first
    const auto past = read_past(r.path);
    const auto rank = past ? past->rank() : std::nullopt;
    if (!rank || !known.emplace(rank->group, rank->job, rank->rank).second) continue;
    ended.push_back({std::move(r.session), std::move(r.path), rank});
    // The group of the matching rank that ended last.
    const std::vector<live_group> meant = groups_named(groups_among(ended), name);
    if (!meant.empty() && !found) found = {meant.front().name, meant.front().job};
  }
  if (!found) return std::nullopt;
  for (live_group& group : groups_among(ended)) {
    if (std::pair(group.name, group.job) == *found) return std::move(group);
  }
  return std::nullopt;
}

int no_such_past_group(const session_choice& choice) {
  const std::string why = fmt::format("there is no record of an ended session of the group '{}'", printable(choice.group));
  return refuse_with(exit_no_session, {errc::io, why, 0}, choice.as_json);
}

std::string choice_in_words(const session_choice& choice) {
  if (!choice.socket.empty()) return " --socket " + choice.socket;
  std::string words = choice.last ? " --last" : "";
  if (!choice.group.empty()) words += " --group " + choice.group;
  if (!choice.session.empty()) words += " --session " + choice.session;
  return words;
}

std::string end_with_reason(const std::filesystem::path& record) {
  const auto past = read_past(record);
  if (!past) return "";
  const json summary = past->summary();
  const bool has_failure = summary.at("failure").is_string();
  const std::string why = has_failure ? "" : one_line(text_of(summary.at("reason")));
  // A session that ended in an orderly way recorded its status at its end.
  const double age = has_failure || summary.at("outcome") != "died" ? 0 : past->status_age_seconds().value_or(0);
  const std::string from = age < told_status_age ? "" : fmt::format("; its last status is from {:.0f} s before that", age);
  return end_in_words(summary) + (why.empty() ? "" : ": " + why) + from;
}

std::string files_of_ended(const std::filesystem::path& session) {
  const auto past = control::is_record(session) ? read_past(session) : result<past_session>(tl::unexpect, failure{});
  const json summary = past ? past->summary() : json();
  return !past || summary.at("outcome") == "running" ? "" : files_at_end(summary);
}

void tell_last(const session_choice& choice, const std::filesystem::path& record) {
  if (!choice.last || choice.as_json) return;
  const auto past = read_past(record);
  if (!past) return;
  say(wrapped(fmt::format("'{}' {}", printable(text_of(past->summary().at("session"))), end_with_reason(record)), terminal_width(STDERR_FILENO), 2));
  tell_rank_of_last(choice, record);
}

void tell_rank_of_last(const session_choice& choice, const std::filesystem::path& record) {
  if (!choice.last || choice.as_json || !choice.for_groups || !choice.session.empty()) return;
  const auto past = read_past(record);
  const auto rank = past ? past->rank() : std::nullopt;
  if (!rank) return;
  say(fmt::format("this is rank {} of group {}; all ranks: `{}`", rank->rank, printable(rank->group),
                  typed_again("--last --group " + printable(rank->group))));
}

std::string last_end_in_words(const std::string& session) {
  const auto last = last_record(session);
  const auto summary = last ? summary_of(*last) : std::nullopt;
  return summary ? fmt::format("'{}' {}", printable(last->session), end_in_words(*summary)) : "";
}

std::string next_for_past(const session_choice& choice) {
  const std::string last = "--last" + (choice.session.empty() ? "" : " --session " + printable(choice.session));
  if (!choice.next_if_ended.empty()) return choice.next_if_ended;
  return choice.reading_verb.empty() ? "penstock status " + last : typed_again(last);
}

std::optional<json> last_ended(const std::string& session) {
  for (const found_record& r : ended_records()) {
    if (!session.empty() && session != r.session && session != r.id) continue;
    auto about = entry_of(r);
    if (about) return about;
  }
  return std::nullopt;
}

bool is_record_of(const found_record& r, const std::filesystem::path& socket, int pid) {
  const std::string name = socket.stem().string();
  if (pid <= 0) return name == r.session;
  // If the name is taken, a session's socket is NAME-PID, NAME-PID-2 and so on.
  const std::string another = fmt::format("{}-{}", r.session, pid);
  return r.id.ends_with(fmt::format("-{}", pid)) && (name == r.session || name == another || name.starts_with(another + '-'));
}

std::optional<found_record> live_record_of(const std::filesystem::path& socket, int pid) {
  for (found_record& r : control::find_records()) {
    if (r.live && is_record_of(r, socket, pid)) return std::move(r);
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> record_of(const std::filesystem::path& socket, int pid) {
  const auto is_its = [&](const found_record& r) { return is_record_of(r, socket, pid); };
  // The session writes the rest of its record after it has closed its socket.
  const auto until = std::chrono::steady_clock::now() + record_deadline;
  while (true) {
    const std::vector<found_record> all = control::find_records();  // newest first
    const auto r = std::ranges::find_if(all, is_its);
    if (r == all.end()) return std::nullopt;
    if (!r->live) return r->path;
    if (std::chrono::steady_clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(record_polled_every);
  }
}

bool has_ended_sessions() {
  return !ended_records().empty();
}

json ended_sessions(const std::string& name) {
  json all = json::array();
  for (const found_record& r : ended_records()) {
    if (!name.empty() && r.session != name && r.id != name) continue;
    if (auto about = entry_of(r)) all.push_back(std::move(*about));
  }
  return all;
}

}  // namespace penstock::cli
