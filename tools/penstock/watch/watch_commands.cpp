// top, describe and events: what a session is doing, or did.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/group/asked_ranks.hpp"
#include "tools/penstock/host_targets.hpp"
#include "tools/penstock/past/choose_past.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/death_stacks.hpp"
#include "tools/penstock/watch/describe_sample.hpp"
#include "tools/penstock/watch/description.hpp"
#include "tools/penstock/watch/event_reader.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/sample_history.hpp"
#include "tools/penstock/watch/session_tables.hpp"
#include "tools/penstock/watch/stack_names.hpp"
#include "tools/penstock/watch/top.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

// ---- events

struct events_options {
  session_choice choice;
  bool follow = false;
  bool all = false;
  std::string since;
};

/// Whether the event is shown only with --all. In a run with short epochs or many workers, nearly all lines would be
/// such events.
bool is_routine(const json& e) {
  return e.at("kind") == "epoch_done" || e.at("kind") == "memory_attached";
}

/// `utc` may end after its seconds.
std::string to_the_second(std::string utc) {
  constexpr std::size_t date = 10;
  constexpr std::size_t date_and_time = 19;
  return utc.replace(date, 1, " ").substr(0, date_and_time);
}

/// Selects the events shown to people: all that matter, and a count of those left out.
class shown_events {
 public:
  shown_events(const events_options& o, std::string since)
      : everything_(o.all || o.choice.as_json), tells_nothing_(!o.choice.as_json && !o.follow), since_(std::move(since)) {}

  [[nodiscard]] bool shows(const json& e) {
    if (e.at("time").get<std::string>() < since_) return false;
    some_ = true;
    if (everything_ || !is_routine(e)) return true;
    ++left_out_[e.at("kind").get<std::string>()];
    return false;
  }
  /// `code`: the exit code of reading them.
  void tell_left_out(int code) const {
    std::uint64_t all = 0;
    std::string kinds;
    for (const auto& [kind, number] : left_out_) {
      all += number;
      kinds += (kinds.empty() ? "" : ", ") + kind;
    }
    if (all > 0) say(fmt::format("{} left out ({}); --all shows them", counted(all, "event is", "events are"), kinds));
    if (!some_ && tells_nothing_ && code == exit_ok)
      say(since_.empty() ? "nothing has happened yet" : fmt::format("nothing has happened since {} UTC", to_the_second(since_)));
  }

 private:
  bool everything_;
  bool tells_nothing_;  // prints a note if there were none
  bool some_ = false;
  std::string since_;
  std::map<std::string, std::uint64_t> left_out_;  // by kind
};

/// Prints the events of all ranks in time order; with `follow`, as the ranks report them.
int events_of_group(const events_options& o, const live_group& group, const std::string& since,
                    std::size_t width) {
  struct of_rank {
    std::uint32_t rank;
    json event;
  };
  std::mutex mutex;
  std::vector<of_rank> past;
  std::atomic<int> code = exit_ok;
  shown_events shown(o, since);
  const auto show = [&](const of_rank& one) {
    if (!shown.shows(one.event)) return;
    if (o.choice.as_json) {
      json with_rank{{"rank", one.rank}};
      with_rank.update(one.event);
      return print_json(with_rank);
    }
    print(fmt::format("[rank{}] {}", one.rank, event_for_people(one.event, width)));
  };
  std::vector<std::thread> readers;
  for (const live_rank& r : group.ranks) {
    readers.emplace_back([&] {
      const int refused = read_events(o.choice, r.session.socket, o.follow, [&](const json& e) {
        const std::lock_guard lock(mutex);
        o.follow ? show({r.rank, e}) : past.push_back({r.rank, e});
      });
      if (refused != exit_ok) code = refused;
    });
  }
  for (std::thread& reader : readers) reader.join();
  const auto time_of = [](const of_rank& one) { return one.event.at("time").get<std::string>(); };
  std::ranges::stable_sort(past, {}, time_of);
  for (const of_rank& one : past) show(one);
  shown.tell_left_out(code);
  return code;
}

int events(const events_options& o) {
  const auto since = since_of(o.since, std::chrono::system_clock::now());
  if (!since)
    return refuse_with(exit_usage, {errc::usage, "--since: " + since.error().message, 0}, o.choice.as_json);
  const std::size_t width = terminal_width(STDOUT_FILENO);
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return events_of_group(o, *group.group, *since, width);
  const chosen_socket socket = choose_to_show(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  shown_events shown(o, *since);
  const int code = read_events(o.choice, socket.path, o.follow, [&](const json& e) {
    if (!shown.shows(e)) return;
    if (o.choice.as_json) {
      print_json(e);
    } else {
      print(event_for_people(e, width));
    }
  });
  shown.tell_left_out(code);
  if (code == exit_ok && !o.choice.as_json) say_raw(files_of_ended(socket.path));
  return code;
}

void add_events(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<events_options>(
      verbs,
      {"events",
       verb_group::operate,
       "list what happened to a session",
       "Deaths, restarts, failed samples and operators' requests: the last 4096, oldest first. Ends of epochs, and what the device registered, "
       "are shown with --all and with --json. Batches are not events. --since takes a duration (10m: the last ten minutes), or a time of day or a "
       "date in UTC (14:05, 2026-11-20T14:05:00).",
       {{"penstock events --since 10m", "the last ten minutes"},
        {"penstock events -f", "continue until the session ends"},
        {"penstock events -f --json | jq 'select(.kind == \"worker_died\").death'",
         "one JSON object per line"}}},
      events);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  verb.add_flag("-f,--follow", o->follow, "continue until the session ends");
  verb.add_flag("--all", o->all, "also show the end of each epoch and the memory that the device registered; --json always does");
  verb.add_option("--since", o->since, "only what happened since then")->type_name("TIME");
}

// ---- describe

struct describe_options {
  session_choice choice;
  std::string target = "all";
  bool all_frames = false;
};

/// Adds the stack of a worker's last death, for people.
void add_stack(json& worker, bool all_frames) {
  const json& death = worker.at("last_death");
  if (!death.is_null()) worker["stack_lines"] = stack_lines(death, name_frames, all_frames ? frames_shown::all : frames_shown::of_user);
}

int describe_group(const describe_options& o, const live_group& group, const target& meant) {
  json all = head_of(group);
  rank_outcomes outcomes;
  for (rank_answer& a : ask_ranks(group, {{"verb", "pipeline"}}, answer_deadline)) {
    json about = a.result ? description_of(*a.result, meant) : json();
    if (a.result && meant.kind == target_kind::worker && about.at("workers").empty()) {
      a.result.reset();
      a.refused = exit_no_target;
      a.why_not = "there is no " + o.target;
    }
    outcomes.add(a.result ? exit_ok : a.refused);
    json row{{"rank", a.rank}, {"session", a.session}};
    row[a.result ? "description" : "error"] = a.result ? about : json(a.why_not);
    if (!o.choice.as_json) {
      print(fmt::format("rank {} ({}){}", a.rank, a.session, a.result ? ":" : ": " + a.why_not));
      if (a.result) print_raw(description_for_people(about, terminal_width(STDOUT_FILENO)));
    }
    all["ranks"].push_back(std::move(row));
  }
  if (o.choice.as_json) print_json("penstock.group-describe/1", all);
  return outcomes.code();
}

/// The last lines that a process has written.
json last_output(const std::filesystem::path& socket, const std::string& source) {
  constexpr int lines_shown = 5;
  json lines = json::array();
  const auto answer = ask(socket, {{"verb", "logs"}, {"target", source}, {"tail", lines_shown}}, look_deadline);
  if (!answer || !answer->value("ok", false)) return lines;
  for (const json& line : answer->at("result").at("lines")) lines.push_back(line.at("text"));
  return lines;
}

int describe_host(const describe_options& o, const std::string& name) {
  const chosen_socket socket = choose_to_show(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer answer = request(o.choice, socket.path, {{"verb", "pipeline"}});
  if (answer.refused != exit_ok) return answer.refused;
  const json about = description_of_host(answer.result, name);
  if (about.at("hosts").empty()) return no_such_target(o.choice, no_such_host(answer.result.at("status"), name));
  if (o.choice.as_json) {
    print_json(about);
  } else {
    print_raw(description_for_people(about, terminal_width(STDOUT_FILENO)));
  }
  return exit_ok;
}

int describe_target(describe_options o) {
  const auto sample = sample_in_target(o.target);
  const auto host = parse_host_target(o.target);
  const bool of_host = host && !host->worker;
  if (sample || of_host) o.choice.for_groups = false;  // one session at a time
  if (sample) return describe_sample(o.choice, *sample, o.all_frames);
  if (of_host) return describe_host(o, host->host);
  if (const int no = name_worker(o.choice, o.target); no != exit_ok) return no;
  const auto meant = parse_target(o.target);
  if (!meant) return no_such_target(o.choice, not_a_target(o.target, ", sample/N, host/NAME"));
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return describe_group(o, *group.group, *meant);
  const chosen_socket socket = choose_to_show(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer answer = request(o.choice, socket.path, {{"verb", "pipeline"}});
  if (answer.refused != exit_ok) return answer.refused;
  json about = description_of(answer.result, *meant);
  if (meant->kind == target_kind::worker && about.at("workers").empty())
    return no_such_worker(o.choice, o.target, answer.result.at("status").at("workers"));
  if (meant->kind == target_kind::worker) about["workers"][0]["output"] = last_output(socket.path, o.target);
  if (o.choice.as_json) {
    print_json(about);
  } else {
    if (meant->kind == target_kind::worker) add_stack(about["workers"][0], o.all_frames);
    print_raw(description_for_people(about, terminal_width(STDOUT_FILENO)));
  }
  return exit_ok;
}

/// An older version of penstock may have written the record, or may run the session.
int describe(const describe_options& o) {
  try {
    return describe_target(o);
  } catch (const json::out_of_range& lacks) {
    const std::string_view what = lacks.what();
    return refuse_with(exit_failed,
                       {errc::protocol,
                        fmt::format("another version of penstock ran this session and recorded too little about {} to describe it here ({}); "
                                    "`penstock status --json` shows what it says",
                                    printable(o.target), what.substr(what.find("] ") == std::string_view::npos ? 0 : what.find("] ") + 2)),
                        0},
                       o.choice.as_json);
  }
}

void add_describe(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<describe_options>(
      verbs,
      {"describe",
       verb_group::operate,
       "show everything about a target",
       "The details that status omits: the current sample and how long it has taken, the full last death "
       "with its last lines of output, where batches are, and what waits for what. For a sample: which worker is loading it now and since "
       "when, how it failed, with Python's frames if its code raised, which workers died while loading it, with their stacks, and whether its batch "
       "was delivered.",
       {{"penstock describe worker/3", "its state, its sample, its last death"},
        {"penstock describe sample/51 --last", "what it raised in the run that ended last, and in which line"},
        {"penstock describe scheduler", "where batches are, and what the device waits for"},
        {"penstock describe host/alpha", "a loader host: what it holds, sends and has lost"}}},
      describe);
  add_group_choice(verb, o->choice);
  add_past_choice(verb, o->choice);
  verb.add_flag("--all-frames", o->all_frames, "for worker/N and sample/N: all frames of the stacks of dead workers, not only those of your code");
  verb.add_option("TARGET", o->target, "worker/N, workers, sample/N, gpu, scheduler, host/NAME or all")->required();
}

// ---- top

void add_top(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<top_options>(
      verbs,
      {"top",
       verb_group::operate,
       "watch a session on a live screen",
       "Throughput, what the device waits for, where batches are, and each worker with its current sample "
       "and how long it has taken. The worker that the device waits for comes first. Keys: q quits; p pauses "
       "and resumes "
       "the stream; j and k scroll the workers, space and b by pages, g and G to the ends. Without a "
       "terminal, or with --once, it prints one screen. With --json, one object every interval. For a group, "
       "it shows a table with a line for each rank; q quits.",
       {{"penstock top", "the only live session"},
        {"penstock top --once", "one screen, for scripts and tickets"}}},
      top);
  add_group_choice(verb, o->choice);
  verb.add_option("--every", o->every, "how often to redraw")->type_name("TIME")->capture_default_str();
  verb.add_flag("--once", o->once, "print one screen as plain text");
}

}  // namespace

void add_watch_commands(verb_table& verbs) {
  add_top(verbs);
  add_describe(verbs);
  add_events(verbs);
  add_trace_command(verbs);
}

}  // namespace penstock::cli
