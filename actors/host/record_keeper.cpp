#include "actors/host/record_keeper.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <nlohmann/json.hpp>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace penstock::host {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::ordered_json;
using clock = std::chrono::steady_clock;

constexpr auto write_every = 1s;
constexpr auto file_system_patience = 500ms;  // when the session ends
/// Limits how often a long status is written: the status of 8 workers is still written every second.
constexpr std::size_t status_bytes_per_second = 16 * 1024;
// A rewritten record contains at most 1/4 of bytes_max of events and 1/8 of output. Even with the status of
// 1024 workers it is less than half full.
constexpr std::size_t events_share = 4;
constexpr std::size_t logs_share = 8;

std::string as_line(const json& line) {
  return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string line_of(const char* kind, const json& what) {
  return as_line({{kind, what}});
}

std::string line_of_status(const json& status) {
  return as_line({{"status", status}, {"time", telemetry::as_utc(std::chrono::system_clock::now())}});
}

/// The last lines that fit into this many bytes, in order.
std::string last_of(const std::deque<std::string>& lines, std::size_t bytes) {
  std::size_t first = lines.size();
  for (std::size_t used = 0; first > 0 && (used += lines[first - 1].size()) <= bytes;) --first;
  std::string text;
  for (std::size_t i = first; i < lines.size(); ++i) text += lines[i];
  return text;
}

}  // namespace

/// Shared with the thread, which may outlive the keeper: see stop().
struct record_keeper::work {
  record_source source;

  std::mutex mutex;  // guards the members below; held while the source answers
  std::condition_variable changed;
  bool stopping = false;  // the source is gone; its final lines are in `last_words`
  bool done = false;
  std::string last_words;
  std::uint64_t told = 0;      // number of the newest event taken
  json seen = json::object();  // the lines of output taken so far
  clock::time_point status_due{};
  std::string last_status;
  std::string last_quarantine;

  // Used by the thread only.
  std::optional<control::session_record> record;

  [[nodiscard]] std::string header() const {
    json about{{"schema", "penstock.record/1"},
               {"session", source.session},
               {"pid", ::getpid()},
               {"started", telemetry::as_utc(source.started)},
               {"workers_max", source.workers_max},
               {"of", words_for(source.work).name}};
    if (const auto& r = source.rank)
      about["rank"] = {{"job", r->job}, {"group", r->group}, {"rank", r->rank}};
    return line_of("record", about);
  }

  [[nodiscard]] json ask(json question) const {
    const control::answer got = source.answer(question, true);
    return got && got->value("ok", false) ? got->at("result") : json();
  }

  // ---- under the mutex

  /// Returns whether one of the events is a death.
  bool take_events(std::deque<std::string>& into) {
    bool died = false;
    while (true) {
      const json page = ask({{"verb", "events"}, {"after", told}});
      if (page.is_null() || page.at("events").empty()) return died;
      for (const json& e : page.at("events")) {
        died |= !e.at("death").is_null();
        into.push_back(line_of("event", e));
      }
      told = page.at("events").back().at("number").get<std::uint64_t>();
    }
  }

  void take_logs(std::deque<std::string>& into) {
    const json page = ask({{"verb", "logs"}, {"after", seen}});
    if (page.is_null()) return;
    for (const json& line : page.at("lines")) into.push_back(line_of("log", line));
    seen = page.at("seen");
  }

  [[nodiscard]] json status_now() const { return ask({{"verb", "status"}}); }
  [[nodiscard]] std::string why_line() const {
    const json found = ask({{"verb", "why"}});
    return found.is_null() ? std::string() : line_of("why", found);
  }

  /// Empty until something is quarantined, because the session builds the list from its whole report. From
  /// then on even an empty list is written, because samples can be released.
  [[nodiscard]] std::string quarantine_line(const json& status) const {
    bool any = status.is_object() && status.value("quarantined", std::uint64_t{0}) > 0;
    // A data loader leaves out samples that an earlier run quarantined, but does not count them as
    // quarantined.
    if (status.is_object() && status.value("jobs", json()).is_object())
      any |= status.value("samples_done", std::uint64_t{0}) > status.value("samples_delivered", std::uint64_t{0});
    return any || !last_quarantine.empty() ? line_of("quarantine", ask({{"verb", "quarantine"}})) : std::string();
  }

  /// What is new since the previous call. Repeats a status only if it has changed, and less often if it is long.
  std::string news(bool whole, clock::time_point now) {
    std::deque<std::string> events;
    const bool died = take_events(events);
    std::string text = last_of(events, source.bytes_max / events_share);
    // On a death, save its output now: the session drops the output of a process when the next one in its
    // place ends.
    if (!whole && !died) return text;
    std::deque<std::string> logs;
    take_logs(logs);
    text += last_of(logs, source.bytes_max / logs_share);
    if (!whole || now < status_due) return text;
    const json found = status_now();
    std::string quarantine = quarantine_line(found);
    std::string status = line_of("status", found);
    const std::string why = why_line();
    status_due = now + std::chrono::milliseconds(1000 * (quarantine.size() + status.size() + why.size()) /
                                                 status_bytes_per_second);
    if (quarantine != last_quarantine) text += quarantine;
    if (status != last_status) text += line_of_status(found) + why;
    last_quarantine = std::move(quarantine);
    last_status = std::move(status);
    return text;
  }

  /// Everything that the session still knows, to replace a record that has grown too large.
  [[nodiscard]] std::string everything() {
    std::deque<std::string> events;
    std::deque<std::string> logs;
    told = 0;
    seen = json::object();
    take_events(events);
    take_logs(logs);
    const json status = status_now();
    return header() + last_of(events, source.bytes_max / events_share) +
           last_of(logs, source.bytes_max / logs_share) + quarantine_line(status) + line_of_status(status) + why_line();
  }

  // ---- the thread

  void give_up(const failure& why) {
    log::info("control", "{}; what this session does from now on will not be readable after it ends",
              why.message);
    record.reset();
  }

  void write(const std::string& text) {
    if (!record) return;
    if (text.empty()) return record->touch();  // the file's modification time shows when the session was last alive
    if (auto ok = record->append(text); !ok) give_up(ok.error());
  }

  void open() {
    auto made = control::session_record::create(source.session, ::getpid(), source.started);
    if (!made) return give_up(made.error());
    record.emplace(std::move(*made));
    write(header());
    control::prune_records();
  }

  /// Waits for an event, the next second, or the end.
  void wait(std::uint64_t heard, clock::time_point until) {
    const auto found = source.journal->wait_for_events_after(heard, 1, until);
    if (!found.events.empty()) return;
    std::unique_lock hold(mutex);  // after give_up() the journal no longer waits, so wait here
    changed.wait_until(hold, until, [this] { return stopping; });
  }

  void run() {
    open();
    auto next_look = clock::now();
    std::uint64_t heard = 0;  // a copy of `told`, which stop() may change
    while (record) {
      wait(heard, next_look);
      std::unique_lock hold(mutex);
      if (stopping) break;
      const auto now = clock::now();
      const bool whole = now >= next_look;
      if (whole) next_look = now + write_every;
      const std::string text = news(whole, now);
      const bool too_large = record->bytes() + text.size() > source.bytes_max;
      const std::string all = too_large ? everything() : std::string();
      heard = told;
      hold.unlock();
      if (!too_large) {
        write(text);
      } else if (auto ok = record->rewrite(all); !ok) {
        give_up(ok.error());
      }
    }
    std::unique_lock hold(mutex);
    changed.wait(hold, [this] { return stopping; });
    hold.unlock();
    write(last_words);
    if (record) record->finish();
    record.reset();
    hold.lock();
    done = true;
    changed.notify_all();
  }
};

record_keeper::record_keeper(record_source source) : work_(std::make_shared<work>()) {
  work_->source = std::move(source);
  const all_signals_blocked quiet;
  thread_ = std::thread([work = work_] {
    ::pthread_setname_np(::pthread_self(), "penstock-record");
    work->run();
  });
}

void record_keeper::stop() noexcept {
  if (!thread_.joinable()) return;
  work& w = *work_;
  std::unique_lock hold(w.mutex);
  try {
    w.status_due = {};
    w.last_words =
        w.news(true, clock::now()) + line_of("ended", telemetry::as_utc(std::chrono::system_clock::now()));
  } catch (const std::exception& e) {  // out of memory
    log::warn("control", "the end of the session could not be recorded: {}", e.what());
  }
  w.source.answer = {};
  w.stopping = true;
  hold.unlock();
  w.source.journal->give_up();
  w.changed.notify_all();
  hold.lock();
  const bool done = is_done_within(w.changed, hold, file_system_patience, [&w] { return w.done; });
  hold.unlock();
  if (done) {
    thread_.join();
  } else {
    thread_.detach();  // the file system does not respond; the thread ends when it does
  }
}

}  // namespace penstock::host
