// trace: shows where batches spend their time, in one session or in all ranks of a group.
#include "runtime/base/counted.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/write_all.hpp"
#include "runtime/control/control_client.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/group/asked_ranks.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/session_verb.hpp"
#include "tools/penstock/watch/event_reader.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/trace_json.hpp"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

namespace penstock::cli {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using json = nlohmann::ordered_json;

struct trace_options {
  session_choice choice;
  std::string seconds = "5s";
  std::string out;
};

constexpr auto trace_poll = 50ms;  // the session keeps only its last 4096 batches
constexpr nanoseconds trace_time_least = 1ms;
constexpr nanoseconds trace_time_most = 1h;

/// Where the recording of a session begins.
struct trace_begin {
  std::uint64_t newest_batch = 0;
  std::int64_t now_ns = 0;  // steady clock
};

struct trace_recording {
  std::vector<traced_batch> batches;
  std::vector<traced_event> events;
  std::uint64_t missed = 0;
};

/// The journal uses wall-clock time, the stages a steady clock. One instant read from both converts between
/// them.
std::vector<traced_event> events_between(const session_choice& choice, const std::filesystem::path& socket,
                                         std::int64_t first_ns, std::int64_t last_ns) {
  const auto day = std::chrono::system_clock::now();
  const std::int64_t steady = nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::vector<traced_event> found;
  static_cast<void>(read_events(choice, socket, false, [&](const json& e) {
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

trace_recording record(const session_choice& choice, const std::filesystem::path& socket, const trace_begin& begin, nanoseconds time) {
  trace_recording got;
  std::uint64_t after = begin.newest_batch;
  const auto end = std::chrono::steady_clock::now() + time;
  for (bool last = false; !last;) {
    std::this_thread::sleep_until(std::min(std::chrono::steady_clock::now() + nanoseconds(trace_poll), end));
    last = std::chrono::steady_clock::now() >= end;
    for (bool more = true; more;) {
      const auto answer = control::ask(socket, {{"verb", "trace"}, {"after", after}}, answer_deadline);
      if (!answer || !answer->value("ok", false)) {
        last = true;  // the session has ended; keep what we have
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
  got.events = events_between(choice, socket, begin.now_ns, end_ns);
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

/// Records all sessions at once, so that the recordings cover the same time.
std::vector<trace_recording> record_all(const session_choice& choice,
                                        const std::vector<named_session>& sessions,
                                        const std::vector<trace_begin>& begins, nanoseconds time) {
  std::vector<std::future<trace_recording>> recordings;
  for (std::size_t i = 0; i < sessions.size(); ++i)
    recordings.push_back(std::async(std::launch::async, [&, i] { return record(choice, sessions[i].socket, begins[i], time); }));
  std::vector<trace_recording> all;
  for (auto& one : recordings) all.push_back(one.get());
  return all;
}

int tell_trace(const trace_options& o, std::size_t batches, std::size_t events, std::uint64_t missed) {
  if (o.choice.as_json) {
    print_json({{"schema", "penstock.trace/1"},
                {"file", o.out},
                {"batches", batches},
                {"events", events},
                {"missed", missed}});
    return exit_ok;
  }
  say(fmt::format("{} and {} in {}", counted(batches, "batch", "batches"), counted(events, "event"), o.out));
  if (missed > 0) say(counted(missed, "batch", "batches") + " came too fast to be recorded");
  say("next: open it at ui.perfetto.dev or chrome://tracing");
  return exit_ok;
}

int trace_sessions(const trace_options& o, const std::vector<named_session>& sessions, nanoseconds time) {
  std::vector<trace_begin> begins;  // before the file is created, so that whoever sees the file knows that the recording runs
  for (const named_session& one : sessions) {
    const session_answer first = request(o.choice, one.socket, {{"verb", "trace"}});
    if (first.refused != exit_ok) return first.refused;
    begins.push_back({first.result.value("newest", std::uint64_t{0}), first.result.value("now_ns", std::int64_t{0})});
  }
  if (auto ok = write_file(o.out, ""); !ok) return refuse_with(exit_failed, ok.error(), o.choice.as_json);
  std::vector<traced_session> traced;
  std::size_t batches = 0;
  std::size_t events = 0;
  std::uint64_t missed = 0;
  std::vector<trace_recording> recordings = record_all(o.choice, sessions, begins, time);
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    trace_recording& got = recordings[i];
    batches += got.batches.size();
    events += got.events.size();
    missed += got.missed;
    traced.push_back({sessions[i].name, std::move(got.batches), std::move(got.events)});
  }
  const json document = chrome_trace(std::move(traced));
  if (auto ok = write_file(o.out, document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"); !ok)
    return refuse_with(exit_failed, ok.error(), o.choice.as_json);
  return tell_trace(o, batches, events, missed);
}

int trace(const trace_options& o) {
  const auto time = parse_time_option("--seconds", o.seconds, trace_time_least, trace_time_most);
  if (!time) return refuse_with(exit_usage, time.error(), o.choice.as_json);
  const meant_group group = group_meant(o.choice);
  if (group.refused != exit_ok) return group.refused;
  if (group.group) {
    std::vector<named_session> ranks;
    for (const live_rank& r : group.group->ranks) ranks.push_back(r.session);
    return trace_sessions(o, ranks, *time);
  }
  const chosen_socket socket = choose(o.choice);
  if (socket.refused != exit_ok) return socket.refused;
  return trace_sessions(o, {{socket.path.stem().string(), socket.path}}, *time);
}

}  // namespace

void add_trace_command(verb_table& verbs) {
  const auto [verb, o] = add_session_verb<trace_options>(
      verbs,
      {"trace",
       verb_group::operate,
       "record where batches spend their time",
       "Chrome's trace format, for Perfetto or chrome://tracing: a track for each worker, the scheduler, the "
       "GPU owner, the copy stream and the consumer; an arrow along each batch; deaths and restarts when "
       "they happened. The trace contains the batches that the consumer returned during the recording. "
       "Recording costs "
       "the session nothing: the stages are always timed.",
       {{"penstock trace --seconds 10s --out photos.trace.json", "ten seconds of the only live session"},
        {"penstock trace --group photos --out photos.trace.json",
         "all ranks of a group, each as a process"}}},
      trace);
  add_group_choice(verb, o->choice);
  verb.add_option("--seconds", o->seconds, "how long to record")->type_name("TIME")->capture_default_str();
  verb.add_option("--out", o->out, "the output file")->type_name("FILE")->required();
}

}  // namespace penstock::cli
