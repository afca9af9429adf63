// status, deaths and sessions: the state of a session, its deaths, and the list of sessions.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/control/control_client.hpp"
#include "runtime/control/socket_place.hpp"
#include "runtime/process/process_facts.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/control/slow_stop.hpp"
#include "tools/penstock/group/group_verbs.hpp"
#include "tools/penstock/host_targets.hpp"
#include "tools/penstock/launch/launch_folder.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/death_stacks.hpp"
#include "tools/penstock/watch/session_tables.hpp"
#include "tools/penstock/watch/stack_names.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

struct status_options {
  session_choice choice;
  std::string target = "all";
  bool stacks = false;
  bool all_frames = false;
  bool check = false;
  bool prune = false;
  bool ended = false;
};

/// The workers in an answer to "status" that match a target.
json workers_meant(const json& status, const target& meant) {
  json some = json::array();
  for (const json& w : status.at("workers")) {
    if (meant.means_worker(w.at("id").get<std::uint32_t>())) some.push_back(w);
  }
  return some;
}

int status(status_options o) {
  if (const int no = name_worker(o.choice, o.target); no != exit_ok) return no;
  const auto meant = parse_target(o.target);
  if (!meant) return no_such_target(o.choice, not_a_target(o.target));
  const meant_group all = group_meant(o.choice);
  if (all.refused != exit_ok) return all.refused;
  if (all.group && meant->kind == target_kind::all) return show_group(o.choice, *all.group, o.check);
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  session_answer answer = request(o.choice, socket.path, {{"verb", "status"}});
  if (answer.refused != exit_ok) return answer.refused;
  json& s = answer.result;
  s["stopping"] = stopping_for(s);
  json workers = workers_meant(s, *meant);
  if (meant->kind == target_kind::worker && workers.empty()) return no_such_worker(o.choice, o.target, s.at("workers"));
  s["workers"] = std::move(workers);
  if (o.choice.as_json) {
    print_json(s);
  } else {
    const bool over = s.at("state") == "ended";
    const bool from_record = over || s.at("state") == "suspended";
    if (over) print(wrapped(end_with_reason(socket.path), terminal_width(1), 2));
    if (over && meant->kind == target_kind::all) tell_rank_of_last(o.choice, socket.path);
    print_raw(status_for_people(s, *meant, terminal_width(1)));
    if (over && meant->kind == target_kind::all) print_raw(files_of_ended(socket.path));
    if (s.at("stopping").is_array()) print_raw(stopping_in_words(s.at("stopping"), terminal_width(1)));
    if (const std::string next = from_record ? "" : hint_after_status(s); !next.empty()) {
      say("next: " + next + choice_in_words(o.choice));
    }
  }
  if (!o.check) return exit_ok;
  const bool good = s.at("state") == "ended"
                        ? s.at("outcome") == "finished"
                        : s.at("state") == "ok" && !s.value("stalled", json()).is_object();
  return good ? exit_ok : exit_not_met;
}

int deaths(const status_options& o) {
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return deaths_of_group(o.choice, *group.group);
  return ask_session(o.choice, "penstock.deaths/1", {{"verb", "deaths"}}, answer_deadline, [&](const json& result) {
    const json all = all_deaths(result);
    const std::string losses = losses_in_words(result.value("cost", json()));
    if (all.empty()) {
      return say("no worker or GPU owner has died" + (losses.empty() ? "" : "; " + losses));
    }
    print_raw(deaths_for_people(all, kind_of_answer(result), terminal_width(1)));
    const std::string cost = cost_of_deaths(result.value("cost", json()), kind_of_answer(result));
    if (const std::string sum = cost + (cost.empty() || losses.empty() ? "" : "; ") + losses; !sum.empty())
      print_raw(wrapped(sum, terminal_width(1), 2) + "\n");
    if (o.stacks) print_raw(stacks_for_people(all, name_frames, o.all_frames ? frames_shown::all : frames_shown::of_user));  // named here, because the session must not wait for addr2line
    if (const std::string next = hint_after_deaths(all, o.stacks); !next.empty()) say("next: " + next + choice_in_words(o.choice));
  });
}

/// A killed process keeps its socket until its memory is freed, but has lost its address space.
bool is_ending(pid_t pid) {
  if (pid <= 0) return false;
  const auto facts = process::look_at(pid);
  return !facts || facts->rss_bytes == 0;
}

/// The `sessions` entry of a live session. A session that does not answer in time is busy or stopped, and is
/// still listed.
json session_facts(const control::found_session& s) {
  json about{{"session", s.name},
             {"socket", s.path.string()},
             {"state", nullptr},
             {"outcome", nullptr},
             {"id", nullptr},
             {"pid", nullptr},
             {"age_seconds", nullptr},
             {"epoch", nullptr},
             {"batches_delivered", nullptr},
             {"samples_delivered", nullptr},
             {"samples_done", nullptr},
             {"samples_expected", nullptr},
             {"progress", nullptr},
             {"workers_ended_unexpectedly", nullptr},
             {"owners_ended_unexpectedly", nullptr},
             {"jobs", nullptr},
             {"stalled", nullptr},
             {"suspended", false}};
  // The socket was created with the session.
  std::error_code fault;
  if (const auto made = std::filesystem::last_write_time(s.path, fault); !fault) {
    const std::chrono::duration<double> age = std::filesystem::file_time_type::clock::now() - made;
    about["age_seconds"] = std::round(std::max(age.count(), 0.0) * 10) / 10;
  }
  const pid_t pid = control::process_behind(s.path);
  const auto suspended = [&] {
    about["suspended"] = true;
    about["state"] = "suspended";
    about["pid"] = pid;
    if (const auto record = live_record_of(s.path, pid)) about["id"] = record->id;
    return about;
  };
  if (!if_suspended(pid).empty()) return suspended();
  const auto answer = control::ask(s.path, {{"verb", "status"}}, look_deadline);
  if (!answer || !answer->value("ok", false)) {
    if (!if_suspended(pid).empty()) return suspended();  // the session may have been suspended after the request
    if (pid > 0) about["pid"] = pid;
    if (is_ending(pid)) about["state"] = "gone";
    return about;
  }
  for (const char* key : {"state", "outcome", "id", "pid", "epoch", "batches_delivered", "samples_delivered", "samples_done", "samples_expected", "progress",
                          "workers_ended_unexpectedly", "jobs", "stalled"})
    about[key] = answer->at("result").value(key, json());
  about["owners_ended_unexpectedly"] = answer->at("result").value("gpu", json::object()).value("ended_unexpectedly", json());
  return about;
}

std::vector<std::string> session_row(const json& s) {
  const auto text = [&](const char* key) {
    const json& value = s.at(key);
    return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::string progress = "-";
  if (is_pool(s)) progress = progress_of_jobs(s);
  if (!is_pool(s) && s.at("progress").is_number()) progress = fmt::format("{}, epoch {}", percent_of(s), text("epoch"));
  const json& seconds = s.at("age_seconds");
  const std::string age = seconds.is_null() ? "-" : age_in_words(seconds.get<double>());
  std::string state = s.at("state").is_null() ? "no answer" : s.at("state") == "gone" ? "its process is gone" : text("state");
  if (s.at("outcome") == "finished") state = "finished, still open";
  if (const json& stall = s.at("stalled"); stall.is_object())
    state += fmt::format(", stalled for {:.0f} s", stall.at("seconds").get<double>());
  return {text("session"), state, text("pid"), age, progress, deaths_in(s), text("socket")};
}

void show_ended(const json& ended) {
  if (ended.empty()) return say("there is no record of an ended session");
  print_raw(ended_for_people(ended, terminal_width(STDOUT_FILENO)));
  say("next: penstock events --session ID, with one of these");
}

int sessions(const status_options& o) {
  const std::string& name = o.choice.session;
  json live = json::array();
  std::uint64_t dead = 0;
  for (const auto& s : control::find_sessions()) {
    if (!s.alive) {
      ++dead;
    } else if (name.empty() || s.name == name) {
      live.push_back(session_facts(s));
    }
  }
  const json ended = o.ended ? ended_sessions(name) : json::array();
  if (!name.empty() && live.empty() && ended.empty()) {
    const std::string why = fmt::format("there is no live {}session '{}'", o.ended ? "or ended " : "", printable(name));
    return refuse_with(exit_no_session, {errc::io, why, 0}, o.choice.as_json, o.ended ? "penstock sessions --ended" : typed_again("--ended"));
  }
  const std::size_t removed = o.prune ? control::remove_dead_sockets() : 0;
  dead -= std::min<std::uint64_t>(dead, removed);
  const std::size_t removed_folders = o.prune ? remove_left_launch_folders() : 0;
  const std::size_t folders = left_launch_folders().size();
  if (o.choice.as_json) {
    json all{{"schema", "penstock.sessions/1"},
             {"sessions", std::move(live)},
             {"dead", dead},
             {"removed", removed},
             {"left_folders", folders},
             {"removed_folders", removed_folders}};
    if (o.ended) all["ended"] = ended;
    print_json(all);
    return exit_ok;
  }
  if (live.empty()) {
    say("there is no live session");
    if (!o.ended && has_ended_sessions()) say("next: penstock sessions --ended");
  } else {
    std::vector<std::vector<std::string>> rows;
    for (const json& s : live) rows.push_back(session_row(s));
    print_raw(text_table({{"SESSION"},
                          {"STATE"},
                          {"PID", column_side::right},
                          {"AGE", column_side::right},
                          {"PROGRESS"},
                          {"DEATHS", column_side::right},
                          {"SOCKET", column_side::left, true}},
                         rows, terminal_width(STDOUT_FILENO)));
  }
  if (o.ended) show_ended(ended);
  if (removed > 0) say(fmt::format("removed {} of dead sessions", counted(removed, "socket")));
  if (removed_folders > 0)
    say(fmt::format("removed {} of launchers that are gone", counted(removed_folders, "folder")));
  if (dead > 0) say(fmt::format("{} left by dead sessions", counted(dead, "socket was", "sockets were")));
  if (folders > 0)
    say(fmt::format("{} left by launchers that are gone", counted(folders, "folder was", "folders were")));
  if (dead > 0 || folders > 0) say("next: penstock sessions --prune");
  return exit_ok;
}

void add_status(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<status_options>(
      verbs,
      {"status",
       verb_group::operate,
       "show the state of a live session",
       "One table: the session, its device, and its workers with their last deaths; for a pool of jobs, how many jobs of each function are "
       "waiting, running, ok or failed. A target limits the table to its own "
       "lines.",
       {{"penstock status", "the only live session"},
        {"penstock status worker/3 --json | jq .workers[0].current_sample", "what worker 3 is working on"},
        {"penstock status --group photos", "all ranks of a group, one line each"},
        {"penstock status --check --session photos",
         "for scripts: exit code 3 unless the state is ok and the stream moves"}}},
      status);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  verb.add_flag("--check", o->check,
                "exit 3 unless the state is ok and the stream is not stalled; for an ended session, unless "
                "it has finished");
  verb.add_option("TARGET", o->target, "worker/N, workers, gpu, scheduler or all");
}

void add_deaths(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<status_options>(
      verbs,
      {"deaths",
       verb_group::operate,
       "list the deaths of workers and GPU owners",
       "The last 1000 of each, oldest first: cause, signal or exit code, and the sample or job that the "
       "death is blamed on. With --json, owners are in a separate list, owner_deaths. For a group, the ranks "
       "that rank 0 saw lost are listed too.",
       {{"penstock deaths", "as a table"},
        {"penstock deaths --json | jq '.deaths[-1].last_output'",
         "the last output of the process that died last"}}},
      deaths);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  auto* const stacks = verb.add_flag("--stacks", o->stacks, "also print the stack of each; a stack that several share is printed once");
  verb.add_flag("--all-frames", o->all_frames, "with --stacks: all frames, not only those of your code")->needs(stacks);
}

void add_sessions(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<status_options>(
      verbs,
      {"sessions",
       verb_group::look,
       "list live sessions; with --ended, also ended ones",
       "Name, state, pid, age, progress, deaths (of workers and GPU owners) and control socket of each. DEATHS does not count ends that an "
       "operator or a limit in the config ordered, such as [loader.limits] memory: `penstock deaths` lists those, too. With --ended also the "
       "last sessions of this user that have ended, each with an ID for status, describe, deaths, events and logs. A killed "
       "session leaves its socket behind, and a killed launcher its temporary folder; --prune removes the "
       "sockets of dead sessions and the folders of dead launchers.",
       {{"penstock sessions", "as a table"},
        {"penstock sessions --ended", "what ran last night, and how it ended"},
        {"penstock sessions --prune", "also remove what dead sessions left"}}},
      sessions);
  verb.remove_option(verb.get_option("--socket"));
  verb.remove_option(verb.get_option("--group"));
  verb.get_option("--session")->description("only sessions of this name; with --ended, also the ID of an ended session");
  verb.add_flag("--ended", o->ended, "also list the last sessions that have ended");
  verb.add_flag("--prune", o->prune, "remove the sockets of dead sessions and the folders of dead launchers");
}

}  // namespace

void add_status_commands(verb_table& verbs) {
  add_status(verbs);
  add_deaths(verbs);
  add_sessions(verbs);
}

}  // namespace penstock::cli
