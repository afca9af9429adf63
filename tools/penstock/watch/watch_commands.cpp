// top, describe, events and trace: what a live session is doing.
#include "runtime/base/counted.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/control/control_client.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/group/group_verbs.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/targets.hpp"
#include "tools/penstock/watch/description.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/session_tables.hpp"
#include "tools/penstock/watch/top.hpp"
#include "tools/penstock/watch/trace_json.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;

// ---- events

struct events_options {
  session_choice choice;
  bool follow = false;
  std::string since;
};

/// All events after a number, page by page, until there are no more; with `follow`, until the session ends.
int read_events(const events_options& o, const std::filesystem::path& socket,
                const std::function<void(const json&)>& each) {
  std::uint64_t after = 0;
  while (true) {
    const bool waiting = o.follow && after > 0;
    const auto deadline = waiting ? std::nullopt : std::optional(answer_deadline);
    const auto got =
        control::ask(socket, {{"verb", "events"}, {"after", after}, {"follow", waiting}}, deadline);
    // When the session ends, so do its events.
    if (!got && waiting) return exit_ok;
    if (!got) return refuse_unreached(o.choice, got.error());
    const session_answer told = understand(o.choice, *got);
    if (told.refused != exit_ok) return told.refused;
    const json& page = told.result;
    if (const auto lost = page.value("lost", std::uint64_t{0}); lost > 0 && after > 0)
      say(counted(lost, "event") + " came too fast and were lost");
    const json& all = page.at("events");
    for (const json& e : all) {
      each(e);
      after = e.at("number").get<std::uint64_t>();
    }
    if (all.empty() && (!o.follow || waiting)) return exit_ok;
    if (all.empty()) after = std::max<std::uint64_t>(after, 1);
  }
}

/// Those of all ranks in the order of time; with `follow`, as the ranks tell them.
int events_of_group(const events_options& o, const live_group& group, const std::string& since,
                    std::size_t width) {
  struct of_rank {
    std::uint32_t rank;
    json event;
  };
  std::mutex mutex;
  std::vector<of_rank> past;
  std::atomic<int> code = exit_ok;
  const auto show = [&](const of_rank& one) {
    if (one.event.at("time").get<std::string>() < since) return;
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
      const int refused = read_events(o, r.session.socket, [&](const json& e) {
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
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  return read_events(o, socket.path, [&](const json& e) {
    if (e.at("time").get<std::string>() < *since) return;
    if (o.choice.as_json) {
      print_json(e);
    } else {
      print(event_for_people(e, width));
    }
  });
}

void add_events(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<events_options>(
      verbs,
      {"events",
       verb_group::operate,
       "list what happened to a session",
       "Deaths, restarts, failed samples, epochs and operators' requests: the last 4096, oldest first. "
       "Batches are not events. --since takes a duration (10m: the last ten minutes), or a time of day or a "
       "date in UTC (14:05, 2026-11-20T14:05:00).",
       {{"penstock events --since 10m", "the last ten minutes"},
        {"penstock events -f", "continue until the session ends"},
        {"penstock events -f --json | jq 'select(.kind == \"worker_died\").death'",
         "one JSON object per line"}}},
      events);
  add_group_choice(verb, o->choice);
  verb.add_flag("-f,--follow", o->follow, "continue until the session ends");
  verb.add_option("--since", o->since, "only what happened since then")->type_name("TIME");
}

// ---- describe

struct describe_options {
  session_choice choice;
  std::string target = "all";
};

int describe_group(const describe_options& o, const live_group& group, const target& meant) {
  json all{{"group", group.name}, {"ranks", json::array()}};
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
  if (o.choice.as_json) print_json(all);
  return outcomes.code();
}

int describe(const describe_options& o) {
  const auto meant = parse_target(o.target);
  if (!meant) return no_such_target(o.choice, not_a_target(o.target));
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) return describe_group(o, *group.group, *meant);
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  const session_answer answer = request(o.choice, socket.path, {{"verb", "pipeline"}});
  if (answer.refused != exit_ok) return answer.refused;
  const json about = description_of(answer.result, *meant);
  if (meant->kind == target_kind::worker && about.at("workers").empty())
    return no_such_target(o.choice, "there is no " + o.target);
  if (o.choice.as_json) {
    print_json(about);
  } else {
    print_raw(description_for_people(about, terminal_width(STDOUT_FILENO)));
  }
  return exit_ok;
}

void add_describe(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<describe_options>(
      verbs,
      {"describe",
       verb_group::operate,
       "show everything about a target",
       "The details that status omits: the current sample and its duration, the full last death with the "
       "last lines of output, where batches are, and what waits for what.",
       {{"penstock describe worker/3", "its state, its sample, its last death"},
        {"penstock describe scheduler", "where batches are, and what the device waits for"}}},
      describe);
  add_group_choice(verb, o->choice);
  verb.add_option("TARGET", o->target, "worker/N, workers, gpu, scheduler or all")->required();
}

// ---- trace

struct trace_options {
  session_choice choice;
  double seconds = 5;
  std::string out;
};

constexpr auto trace_poll = 50ms;  // the session keeps its last 4096 batches
constexpr double trace_seconds_max = 3600;

struct trace_recording {
  std::vector<traced_batch> batches;
  std::vector<traced_event> events;
  std::uint64_t missed = 0;
  int refused = exit_ok;
};

/// The journal uses the time of day, the stages the steady clock; one point in time is known in both.
std::vector<traced_event> events_between(const session_choice& choice, const std::filesystem::path& socket,
                                         std::int64_t first_ns, std::int64_t last_ns) {
  const auto day = std::chrono::system_clock::now();
  const std::int64_t steady = nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::vector<traced_event> found;
  events_options all;
  all.choice = choice;
  static_cast<void>(read_events(all, socket, [&](const json& e) {
    const auto when = time_of_utc(e.at("time").get<std::string>());
    if (!when) return;
    const std::int64_t at = steady - nanoseconds(day - *when).count();
    if (at < first_ns || at > last_ns) return;
    traced_event one{at, std::nullopt, e.at("kind").get<std::string>(), e.at("text").get<std::string>()};
    if (e.at("worker").is_number()) one.worker = e.at("worker").get<std::uint32_t>();
    found.push_back(std::move(one));
  }));
  return found;
}

trace_recording record(const trace_options& o, const std::filesystem::path& socket) {
  trace_recording got;
  const session_answer first = request(o.choice, socket, {{"verb", "trace"}});
  if (first.refused != exit_ok) return {{}, {}, 0, first.refused};
  std::uint64_t after = first.result.value("newest", std::uint64_t{0});
  const std::int64_t begin_ns = first.result.value("now_ns", std::int64_t{0});
  const auto end = std::chrono::steady_clock::now() + nanoseconds(static_cast<std::int64_t>(o.seconds * 1e9));
  for (bool last = false; !last;) {
    std::this_thread::sleep_until(std::min(std::chrono::steady_clock::now() + nanoseconds(trace_poll), end));
    last = std::chrono::steady_clock::now() >= end;
    for (bool more = true; more;) {
      const auto answer = control::ask(socket, {{"verb", "trace"}, {"after", after}}, answer_deadline);
      if (!answer || !answer->value("ok", false)) {
        last = true;  // the session ended; keep what we have
        break;
      }
      const json& page = answer->at("result");
      for (const json& p : page.at("batches")) {
        const auto batch = traced_batch_of(p);
        if (!batch) continue;
        got.missed += batch->number - after - 1;
        after = batch->number;
        got.batches.push_back(*batch);
      }
      more = !page.at("batches").empty() && page.value("newest", after) > after;
    }
  }
  const std::int64_t end_ns = nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  got.events = events_between(o.choice, socket, begin_ns, end_ns);
  return got;
}

result<void> write_file(const std::string& path, const std::string& text) {
  const unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const auto no = [&](int code) {
    return refuse_os(errc::io, code, fmt::format("writing '{}'", printable(path)));
  };
  if (!file) return no(errno);
  if (const int code = write_all(file.get(), text); code != 0) return no(code);
  return {};
}

int trace(const trace_options& o) {
  if (!(o.seconds > 0 && o.seconds <= trace_seconds_max)) {
    return refuse_with(
        exit_usage,
        {errc::usage, fmt::format("--seconds must be above 0 and at most {}", trace_seconds_max), 0},
        o.choice.as_json);
  }
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  if (auto ok = write_file(o.out, ""); !ok) return refuse_with(exit_failed, ok.error(), o.choice.as_json);
  const trace_recording got = record(o, socket.path);
  if (got.refused != exit_ok) return got.refused;
  const std::string session = socket.path.stem().string();
  const json document = chrome_trace(session, got.batches, got.events);
  if (auto ok = write_file(o.out, document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"); !ok)
    return refuse_with(exit_failed, ok.error(), o.choice.as_json);
  if (o.choice.as_json) {
    print_json({{"file", o.out},
                {"batches", got.batches.size()},
                {"events", got.events.size()},
                {"missed", got.missed}});
    return exit_ok;
  }
  say(fmt::format("{} and {} in {}", counted(got.batches.size(), "batch", "batches"),
                  counted(got.events.size(), "event"), o.out));
  if (got.missed > 0) say(counted(got.missed, "batch", "batches") + " came too fast to be recorded");
  say("next: open it at ui.perfetto.dev or chrome://tracing");
  return exit_ok;
}

void add_trace(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<trace_options>(
      verbs,
      {"trace",
       verb_group::operate,
       "record where batches spend their time",
       "Chrome's trace format, for Perfetto or chrome://tracing: a track for each worker, the scheduler, the "
       "GPU owner, the copy stream and the consumer; an arrow along each batch; deaths and restarts when "
       "they happened. Contains the batches that the consumer returned during the recording. Recording costs "
       "the session nothing: the stages are always timed.",
       {{"penstock trace --seconds 10 --out photos.trace.json", "ten seconds of the only live session"}}},
      trace);
  verb.add_option("--seconds", o->seconds, "how long to record")->type_name("N")->capture_default_str();
  verb.add_option("--out", o->out, "the output file")->type_name("FILE")->required();
}

// ---- top

void add_top(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<top_options>(
      verbs,
      {"top",
       verb_group::operate,
       "watch a session on a live screen",
       "Throughput, what the device waits for, where batches are, and each worker with its current sample "
       "and duration. The worker that the device waits for comes first. Keys: q quits; p pauses and resumes "
       "the stream; j and k scroll the workers, space and b by pages, g and G to the ends. Without a "
       "terminal, or with --once, it prints one screen. With --json, one object every interval. Of a group, "
       "a "
       "table with a line for each rank; q quits.",
       {{"penstock top", "of the only live session"},
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
  add_trace(verbs);
}

}  // namespace penstock::cli
