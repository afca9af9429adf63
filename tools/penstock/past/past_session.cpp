#include "tools/penstock/past/past_session.hpp"

#include "runtime/base/text.hpp"
#include "runtime/control/control_server.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

std::string text_in(const json& from, const char* key) {
  const json value = from.value(key, json());
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Marks the sacrificial worker as a live session does.
json marked(json death, const char* id, std::uint64_t workers_max) {
  death["sacrificial"] = death.value(id, std::uint64_t{0}) == workers_max;
  return death;
}

/// Per source, the first incarnation that neither died nor was followed by one that wrote output.
std::map<std::string, std::uint64_t> last_incarnations(const std::vector<json>& logs,
                                                       const std::vector<json>& events) {
  std::map<std::string, std::uint64_t> last;
  const auto note = [&](const std::string& source, std::uint64_t incarnation) {
    last[source] = std::max(last[source], incarnation);
  };
  for (const json& line : logs) note(text_in(line, "source"), line.value("incarnation", std::uint64_t{0}));
  for (const json& e : events) {
    const json death = e.value("death", json());
    if (!death.is_object()) continue;
    const std::string source = death.contains("worker") ? "worker/" + death.at("worker").dump() : "gpu";
    note(source, death.value("incarnation", std::uint64_t{0}) + 1);
  }
  return last;
}

}  // namespace

past_session::past_session(const std::vector<std::string>& lines, std::string last_written)
    : ended_(std::move(last_written)) {
  for (const std::string& line : lines) {
    json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object() || parsed.empty()) continue;
    const std::string kind = parsed.begin().key();
    json& what = parsed.begin().value();
    if (kind == "ended" && what.is_string()) {
      ended_ = what.get<std::string>();
      died_ = false;
    }
    if (!what.is_object()) continue;
    if (kind == "record") header_ = std::move(what);
    if (kind == "status") {
      note_workers(what);
      status_ = std::move(what);
      status_time_ = text_in(parsed, "time");
    }
    if (kind == "why") why_ = std::move(what);
    if (kind == "quarantine") quarantine_ = std::move(what);
    if (kind == "event") events_.push_back(std::move(what));
    if (kind == "process_ended") process_end_ = text_in(what, "how");
    if (kind == "log") logs_.push_back(std::move(what));
  }
}

void past_session::note_workers(const json& status) {
  for (const json& w : status.value("workers", json::array())) {
    if (w.value("pid", json()).is_number()) last_seen_[w.value("id", std::uint64_t{0})] = w;
  }
}

void past_session::is_suspended() {
  suspended_ = true;
  died_ = false;
}

void past_session::machine_has_stopped() {
  machine_stopped_ = true;
}

json past_session::status() const {
  json s = status_;
  if (suspended_) {
    s["state"] = "suspended";
    s["status_time"] = status_time_.empty() ? json() : json(status_time_);
    for (const char* key : {"rate", "eta_seconds"}) s[key] = nullptr;
    return s;
  }
  s["state"] = "ended";
  // A live session may have another name, which no verb accepts after its end.
  if (header_.contains("session")) s["session"] = header_.at("session");
  // A worker that has exited has no pid: report its last one. Its samples include those loaded after that status.
  for (json& w : s["workers"]) {
    const std::string state = text_in(w, "state");
    const bool was_empty = state == "stopped" && w.value("why_stopped", json()).is_string();
    const auto seen = last_seen_.find(w.value("id", std::uint64_t{0}));
    if (!was_empty && seen != last_seen_.end() && w.value("pid", json()).is_null()) {
      const std::uint64_t before = seen->second.value("samples", std::uint64_t{0});
      const bool same = w.value("incarnation", json()) == seen->second.value("incarnation", json());
      w["samples"] = same ? std::max(w.value("samples", std::uint64_t{0}), before) : before;
      for (const char* key : {"pid", "incarnation", "rss_bytes"}) w[key] = seen->second.value(key, json());
    }
    if (state != "failed" && !was_empty && state != "unkillable") w["state"] = "ended";
    w["next_restart_seconds"] = nullptr;
  }
  if (const json gpu = s.value("gpu", json()); gpu.is_object()) {
    const std::string state = text_in(gpu, "state");
    if (state != "failed" && state != "stopped" && state != "idle") s["gpu"]["state"] = "ended";
  }
  if (died_) s["outcome"] = "died";
  s["ended"] = ended_;
  const auto from = time_of_utc(text_in(header_, "started"));
  const auto to = time_of_utc(ended_);
  if (from && to) s["uptime_seconds"] = std::max(std::chrono::duration<double>(*to - *from).count(), 0.0);  // as in `sessions --ended`
  s["status_time"] = status_time_.empty() ? json() : json(status_time_);
  for (const char* key : {"rate", "eta_seconds", "stopping_seconds", "killed_in_seconds", "paused_by"}) s[key] = nullptr;
  return s;
}

/// The answer to "why": about the last 10 s before the session's end.
json past_session::why() const {
  json w = why_;
  const json s = status();
  for (const char* key : {"session", "state", "outcome", "failure", "ended"}) w[key] = s.value(key, json());  // a suspended session has no end
  return w;
}

json past_session::summary() const {
  const json s = status_.is_object() ? status() : json{{"outcome", "died"}};
  json about{{"session", header_.value("session", json())},
             {"pid", header_.value("pid", json())},
             {"started", header_.value("started", json())},
             {"ended", ended_}};
  for (const char* key : {"outcome", "failure", "config_file", "epoch", "batches_delivered", "samples_delivered",
                          "samples_expected", "workers_ended_unexpectedly", "jobs"})
    about[key] = s.value(key, json());
  about["owners_ended_unexpectedly"] = s.value("gpu", json::object()).value("ended_unexpectedly", json());
  if (died_) {  // deaths may have been recorded after the last status
    for (const auto& [key, workers] : {std::pair{"workers_ended_unexpectedly", true}, {"owners_ended_unexpectedly", false}})
      if (about[key].is_number()) about[key] = std::max(about[key].get<std::uint64_t>(), deaths_of(workers));
  }
  about["group"] = rank() ? json(rank()->group) : json();
  about["killed_at_stop"] = killed_at_stop();
  about["reason"] = reason();
  about["files"] = s.value("files", json::object());
  about["not_written"] = s.value("not_written", json::object());
  return about;
}

void past_session::files_are(const json& written) {
  if (!status_.is_object()) return;
  status_.erase("files");
  status_.update(written);
}

json past_session::started() const {
  return header_.value("started", json());
}

/// Counts workers and owners that were killed because they did not stop in time when
/// asked, or were given no time. These ends do not count as unexpected.
std::uint64_t past_session::killed_at_stop() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(events_, [](const json& e) {
    return e.contains("death") && was_killed_at_stop(e.at("death"));
  }));
}

std::uint64_t past_session::deaths_of(bool workers) const {
  return static_cast<std::uint64_t>(std::ranges::count_if(events_, [workers](const json& e) {
    const json death = e.value("death", json());
    return death.is_object() && death.contains("worker") == workers && is_unexpected_death(death);
  }));
}

/// How the session ended, in the words of the last event about its end.
std::string past_session::reason() const {
  const char* const run = words_for(kind_of_answer(header_)).run;
  if (died_ && machine_stopped_ && process_end_.empty()) return fmt::format("the machine stopped or was restarted before the program closed the {}", run);
  if (died_) {
    return fmt::format("the program ended without closing the {}: {}", run,
                       process_end_.empty() ? "it was killed, crashed, or exited without cleanup" : process_end_);
  }
  for (auto e = events_.rbegin(); e != events_.rend(); ++e) {
    const std::string kind = text_in(*e, "kind");
    if (kind == "run_finished" || kind == "run_stopped" || kind == "run_failed") return text_in(*e, "text");
  }
  return text_in(status_.is_object() ? status_ : json::object(), "failure");
}

/// The session cannot report its own end: it is recorded after the last event, or missing.
json past_session::end_event(std::uint64_t number) const {
  const std::string outcome = text_in(summary(), "outcome");
  const std::string why = reason();
  json e{{"schema", "penstock.event/1"}, {"number", number}, {"time", ended_}, {"kind", "ended"}};
  for (const char* key : {"worker", "incarnation", "pid", "sample", "path", "epoch", "seq", "death"}) e[key] = nullptr;
  e["text"] = why.empty() ? outcome : outcome + ": " + why;
  e["outcome"] = outcome;
  return e;
}

std::optional<double> past_session::status_age_seconds() const {
  // The status of a finished stream no longer changes, and is not written again.
  if (!status_.is_object() || text_in(status_, "outcome") != "running") return std::nullopt;
  const auto written = time_of_utc(status_time_);
  const auto ended = time_of_utc(ended_);
  if (!written || !ended) return std::nullopt;
  return std::chrono::duration<double>(*ended - *written).count();
}

std::optional<control::rank_note> past_session::rank() const {
  const json note = header_.value("rank", json());
  if (!note.is_object()) return std::nullopt;
  return control::rank_note{text_in(note, "job"), text_in(note, "group"),
                            note.value("rank", std::uint32_t{0})};
}

json past_session::deaths() const {
  const std::uint64_t sacrificial = header_.value("workers_max", std::uint64_t{0});
  json workers = json::array();
  json owners = json::array();
  for (const json& e : events_) {
    const json death = e.value("death", json());
    if (!death.is_object()) continue;
    death.contains("worker") ? workers.push_back(marked(death, "worker", sacrificial))
                             : owners.push_back(death);
  }
  // The last death event was written before its replacement started; the status has the complete entry.
  const json gpu = status_.is_object() ? status_.value("gpu", json::object()) : json::object();
  const json last = gpu.value("last_death", json());
  if (!owners.empty() && last.is_object() && last.value("pid", json()) == owners.back().value("pid", json()))
    owners.back() = last;
  return {{"schema", "penstock.deaths/1"},
          {"deaths", std::move(workers)},
          {"owner_deaths", std::move(owners)},
          {"cost", status_.is_object() ? status_.value("deaths_cost", json()) : json()},
          {"of", text_in(header_, "of")}};
}

json past_session::events_after(const json& question) const {
  const auto after = question.value("after", std::uint64_t{0});
  json found = json::array();
  std::uint64_t last = 0;
  for (const json& e : events_) {
    last = std::max(last, e.value("number", std::uint64_t{0}));
    if (e.value("number", std::uint64_t{0}) > after) found.push_back(e);
  }
  if (!suspended_ && ++last > after) found.push_back(end_event(last));
  return {{"events", std::move(found)}, {"lost", 0}, {"last", last}};
}

/// All kept output of a source; with `previous`, only the output of its second-to-last process.
json past_session::logs(const json& question) const {
  const std::string target = question.value("target", "all");
  const bool previous = question.value("previous", false);
  const auto last = last_incarnations(logs_, events_);
  json lines = json::array();
  if (question.contains("after"))
    return {{"lines", lines}, {"seen", question.at("after")}};  // nothing more will come
  for (const json& line : logs_) {
    const std::string source = text_in(line, "source");
    const bool meant =
        target == "all" || target == source || (target == "workers" && source.starts_with("worker/"));
    const bool is_previous = line.value("incarnation", std::uint64_t{0}) + 1 == last.at(source);
    if (meant && (!previous || is_previous)) lines.push_back(line);
  }
  if (const json tail = question.value("tail", json());
      tail.is_number_unsigned() && lines.size() > tail.get<std::size_t>())
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(tail.get<std::size_t>()));
  return {{"lines", std::move(lines)}, {"seen", json::object()}};
}

json past_session::answer(const json& question) const {
  const std::string verb = text_in(question, "verb");
  if (verb == "deaths") return control::good_answer(deaths());
  if (verb == "events") return control::good_answer(events_after(question));
  if (verb == "logs") return control::good_answer(logs(question));
  if (verb == "quarantine" && text_in(question, "act") == "list") {
    return control::good_answer(quarantine_.is_object()
                                    ? quarantine_
                                    : json{{"quarantine", json::array()}, {"of", text_in(header_, "of")}});
  }
  const std::string name = printable(text_in(header_, "session"));
  const bool reads_status = verb == "status" || verb == "pipeline" || verb == "why";
  if (reads_status && !status_.is_object()) {
    return control::refusal(
        exit_no_session, "no_status",
        fmt::format("'{}' {} before it recorded a status; `penstock events` shows what is known", name, suspended_ ? "was suspended" : "died"));
  }
  if (verb == "status") return control::good_answer(status());
  if (verb == "why") {
    return why_.is_object()
               ? control::good_answer(why())
               : control::refusal(
                     exit_no_session, "no_why",
                     fmt::format("'{}' recorded no limits, because an older penstock ran it", name));
  }
  if (verb == "pipeline") {
    return control::good_answer(
        {{"status", status()},
         {"batches", {{"loading", 0}, {"loaded", 0}, {"uploading", 0}, {"ready", 0}, {"in_use", 0}}},
         {"waits_for", fmt::format("nothing: the {} {}", words_for(kind_of_answer(header_)).run, suspended_ ? "is suspended" : "has ended")},
         {"waits_for_worker", nullptr},
         {"device_waited_seconds", nullptr}});
  }
  return control::refusal(exit_no_session, "ended",
                          fmt::format("'{}' {}: only status, why, describe, deaths, events, logs and quarantine list work on records", name,
                                      suspended_ ? "is suspended" : "has ended"));
}

}  // namespace penstock::cli
