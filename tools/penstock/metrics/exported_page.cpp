#include "tools/penstock/metrics/exported_page.hpp"

#include "runtime/base/sample_name.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"
#include "runtime/telemetry/metrics_page.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <utility>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;
using telemetry::metric_labels;
using telemetry::metrics_page;

constexpr std::size_t reason_bytes = 200;  // in a label
constexpr std::string_view info = "penstock_session_info{";

/// Empty for null.
std::string label_in(const json& from, const char* key) {
  const json value = from.value(key, json());
  return value.is_null() ? "" : value.is_string() ? printable(value.get<std::string>()) : value.dump();
}

std::optional<double> unix_seconds(const json& from, const char* key) {
  const auto when = time_of_utc(label_in(from, key));
  if (!when) return std::nullopt;
  return std::chrono::duration<double>(when->time_since_epoch()).count();
}

/// The sample's name, as in `penstock_stall_info`.
std::string name_of_sample(const json& from) {
  const std::string path = label_in(from, "path");
  if (from.value("sample", json()).is_null()) return path;
  return path.empty() ? default_sample_name(from.at("sample").get<std::uint64_t>()) : path;
}

metric_labels labels_of(const json& session) {
  return {{"session", label_in(session, "session")}, {"id", label_in(session, "id")}};
}

metric_labels operator+(metric_labels some, metric_labels more) {
  some.insert(some.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return some;
}

/// Adds the last death of each session, as "worker" or "gpu", with its labels.
void add_deaths(metrics_page& p, const std::vector<json>& sessions) {
  const auto each = [&](const auto& tell) {
    for (const json& s : sessions) {
      for (const auto& [key, of] : {std::pair("last_death", "worker"), std::pair("last_owner_death", "gpu")}) {
        if (const json death = s.value(key, json()); death.is_object()) tell(s, death, of);
      }
    }
  };
  p.begin("penstock_session_ended_deaths", "gauge",
          "Deaths of workers or GPU owners in an ended session, by cause; stopped: killed at a stop.");
  for (const json& s : sessions) {
    const json deaths = s.value("deaths", json::object());
    for (const auto& [of, causes] : deaths.items()) {
      for (const auto& [cause, count] : causes.items())
        p.value(labels_of(s) + metric_labels{{"of", of}, {"cause", cause}}, count.get<std::uint64_t>());
    }
  }
  p.begin("penstock_session_ended_last_death_info", "gauge",
          "1; the labels say which process of an ended session died last (a worker or the GPU owner), how and why.");
  each([&p](const json& s, const json& d, const char* of) {
    // The same labels as penstock_last_death_info of a running session or pool.
    metric_labels work{{"sample", name_of_sample(d)}, {"index", label_in(d, "sample")}};
    if (is_pool(s)) work = work + metric_labels{{"job", label_in(d, "job")}, {"work", shortened(label_in(d, "work"), reason_bytes)}};
    p.value(labels_of(s) +
                metric_labels{{"of", of},
                              {"worker", label_in(d, "worker")},
                              {"cause", label_in(d, "cause")},
                              {"reason", shortened(one_line(reason_of_death(d)), reason_bytes)},
                              {"signal", label_in(d, "signal")},
                              {"code", label_in(d, "code")}} +
                work,
            1);
  });
  p.begin("penstock_session_ended_last_death_timestamp_seconds", "gauge", "When that worker or GPU owner died, in Unix time.");
  each([&p](const json& s, const json& d, const char* of) {
    if (const auto time = unix_seconds(d, "time")) p.value(labels_of(s) + metric_labels{{"of", of}}, *time);
  });
}

/// The metrics of ended pools.
void add_jobs(metrics_page& p, const std::vector<json>& sessions) {
  p.begin("penstock_session_ended_jobs", "gauge", "Jobs of an ended pool, by outcome.");
  for (const json& s : sessions) {
    const json jobs = s.value("jobs", json());
    if (!jobs.is_object()) continue;
    for (const char* outcome : {"ok", "failed", "cancelled"})
      p.value(labels_of(s) + metric_labels{{"outcome", outcome}}, jobs.value(outcome, std::uint64_t{0}));
  }
}

/// Adds the quarantined samples, or the poisoned jobs of pools. Older versions recorded jobs under the names of samples' fields.
void add_quarantine(metrics_page& p, const std::vector<json>& sessions, bool of_pools) {
  for (const json& s : sessions) {
    if ((kind_of(s) == work_kind::jobs) != of_pools) continue;
    const json all = s.value("quarantine", json::array());
    for (std::size_t i = all.size() - std::min(all.size(), telemetry::samples_named_max); i < all.size(); ++i) {
      const json& q = all[i];
      p.value(labels_of(s) + (of_pools ? metric_labels{{"job", label_in(q, q.contains("job") ? "job" : "sample")},
                                                       {"work", shortened(label_in(q, q.contains("work") ? "work" : "path"), reason_bytes)}}
                                       : metric_labels{{"sample", name_of_sample(q)}, {"index", label_in(q, "sample")}}),
              1);
    }
  }
}

/// Adds the failures in each session's record, which may have lost the oldest.
void add_failures(metrics_page& p, const std::vector<json>& sessions) {
  p.begin("penstock_session_ended_sample_failed_info", "gauge",
          "1; a sample that an ended session could not load, and why; the last 16 of each session.");
  for (const json& s : sessions) {
    const json all = s.value("failures", json::array());
    std::set<std::string> named;
    for (auto f = all.rbegin(); f != all.rend() && named.size() < telemetry::samples_named_max; ++f) {
      if (!named.insert(name_of_sample(*f)).second) continue;
      p.value(labels_of(s) + metric_labels{{"sample", name_of_sample(*f)},
                                           {"index", label_in(*f, "sample")},
                                           {"reason", shortened(label_in(*f, "text"), reason_bytes)}},
              1);
    }
  }
}

}  // namespace

void merged_pages::add_line(const std::string& name, std::string_view line, metric*& current) {
  if (line.starts_with("# ")) {
    const std::size_t at = line.find(' ', 2) + 1;
    const std::string of(line.substr(at, line.find(' ', at) - at));
    const auto [found, is_new] = metrics_.try_emplace(of);
    if (is_new) {
      order_.push_back(of);
      found->second.first_of = name;
    }
    current = &found->second;
    if (current->first_of == name) current->head += std::string(line) + "\n";
    return;
  }
  const std::size_t end = line.find_first_of("{ ");
  if (current == nullptr || end == std::string_view::npos) return;
  const std::string label = "session=\"" + telemetry::escaped(printable(name)) + '"';
  // The page's own label is the name in the config, which several sessions may share.
  if (line.starts_with(info)) {
    const std::size_t id = std::min(line.rfind(",id=\""), line.rfind('}'));
    current->lines += fmt::format("{}{{{}{}\n", line.substr(0, end), label, line.substr(id));
  } else if (line[end] == ' ') {
    current->lines += fmt::format("{}{{{}}}{}\n", line.substr(0, end), label, line.substr(line.rfind(' ')));
  } else {
    current->lines += fmt::format("{}{{{},{}\n", line.substr(0, end), label, line.substr(end + 1));
  }
}

void merged_pages::add(const std::string& name, const std::string& page, const seen_from_outside& seen) {
  sessions_[name] = {!page.empty(), seen};
  metric* current = nullptr;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    add_line(name, std::string_view(page).substr(begin, end - begin), current);
    begin = end + 1;
  }
}

std::string merged_pages::text() && {
  metrics_page up;
  up.begin("penstock_session_up", "gauge", "1 for each running session of this user; 0 if it does not answer.");
  for (const auto& [name, s] : sessions_) up.value("session", printable(name), s.answers ? 1 : 0);
  up.begin("penstock_session_process_info", "gauge",
           "1 for each running session, even if it does not answer; the labels describe its process as seen from outside.");
  for (const auto& [name, s] : sessions_) {
    if (s.seen.pid <= 0) continue;
    up.value({{"session", printable(name)}, {"id", s.seen.id}, {"pid", std::to_string(s.seen.pid)}, {"process", s.seen.suspended ? "suspended" : "running"}}, 1);
  }
  up.begin("penstock_session_last_seen_timestamp_seconds", "gauge",
           "When the session last wrote to its record, in Unix time; it does so every second.");
  for (const auto& [name, s] : sessions_) {
    if (s.seen.last_seen) up.value("session", printable(name), *s.seen.last_seen);
  }
  std::string all = std::move(up).text();
  for (const std::string& name : order_) all += metrics_.at(name).head + metrics_.at(name).lines;
  return all;
}

std::string page_of_ended(const std::vector<json>& sessions) {
  metrics_page p;
  p.begin("penstock_session_ended_info", "gauge",
          "1 for each session of this user that ended recently; the labels say how. `penstock --session` takes the id.");
  for (const json& s : sessions)
    p.value(labels_of(s) + metric_labels{{"outcome", label_in(s, "outcome")},
                                         {"reason", shortened(label_in(s, "reason"), reason_bytes)},
                                         {"config_file", label_in(s, "config_file")}},
            1);
  const auto times = [&](const char* name, const char* key, const char* help) {
    p.begin(name, "gauge", help);
    for (const json& s : sessions) {
      if (const auto time = unix_seconds(s, key)) p.value(labels_of(s), *time);
    }
  };
  times("penstock_session_ended_timestamp_seconds", "ended", "When the session ended, in Unix time.");
  times("penstock_session_ended_start_timestamp_seconds", "started", "When the session started, in Unix time.");
  const auto numbers = [&](const char* name, const char* key, const char* help) {
    p.begin(name, "gauge", help);
    for (const json& s : sessions) {
      const json status = s.value("status", json());
      const json number = status.is_object() ? status.value(key, json()) : json();
      if (number.is_number()) p.value(labels_of(s), number.get<double>());
    }
  };
  numbers("penstock_session_ended_batches", "batches_delivered", "Batches that the session delivered.");
  numbers("penstock_session_ended_samples", "samples_delivered", "Samples that the session delivered.");
  numbers("penstock_session_ended_samples_expected", "samples_expected", "Samples of the session's whole run.");
  numbers("penstock_session_ended_samples_failed", "failed", "Samples that the session could not load.");
  numbers("penstock_session_ended_samples_quarantined", "quarantined", "Samples that the session left out because they kill workers.");
  numbers("penstock_session_ended_worker_deaths", "workers_ended_unexpectedly", "Unexpected deaths of the session's workers.");
  p.begin("penstock_session_ended_gpu_owner_deaths", "gauge", "Unexpected deaths of the session's GPU owner processes.");
  for (const json& s : sessions) {
    if (const json deaths = s.value("owners_ended_unexpectedly", json()); deaths.is_number())
      p.value(labels_of(s), deaths.get<std::uint64_t>());
  }
  numbers("penstock_session_ended_worker_restarts", "worker_restarts", "Worker processes that the session started as replacements.");
  add_jobs(p, sessions);
  add_deaths(p, sessions);
  p.begin("penstock_session_ended_sample_quarantined_info", "gauge",
          "1; a sample that an ended session left out because it kills workers; the last 16 of each session.");
  add_quarantine(p, sessions, false);
  p.begin("penstock_session_ended_job_poisoned_info", "gauge",
          "1; a job that an ended pool gave up because it kills workers; the last 16 of each pool.");
  add_quarantine(p, sessions, true);
  add_failures(p, sessions);
  return std::move(p).text();
}

}  // namespace penstock::cli
