#include "tools/penstock/watch/description.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/crash_notes.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/death_tables.hpp"
#include "tools/penstock/watch/event_times.hpp"
#include "tools/penstock/watch/host_tables.hpp"
#include "tools/penstock/watch/status_words.hpp"
#include "tools/penstock/watch/why_text.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

/// Whether the worker is still working on the item that has hung.
bool is_current(const json& hung, const json& worker) {
  const json& current = worker.at("current_sample");
  if (!current.is_string()) return false;
  if (current == hung.at("name")) return true;
  return !hung.at("job").is_null() && current.get<std::string>().ends_with(fmt::format("(job {})", text_of(hung.at("job"))));
}

}  // namespace

json description_of(const json& pipeline, const target& meant) {
  const json& s = pipeline.at("status");
  json about{{"schema", "penstock.describe/1"}, {"session", s.at("session")}, {"state", s.at("state")}};
  const bool pool = is_pool(s);
  if (pool) about["pool"] = true;
  about["of"] = words_for(kind_of(s)).name;
  if (meant.means(target_kind::scheduler)) about["stalled"] = s.value("stalled", json());
  if (meant.means(target_kind::scheduler) && pool) {
    about["jobs"] = s.at("jobs");
    about["waits_for"] = pipeline.value("waits_for", json());
    if (kind_of(s) == work_kind::batches) {
      for (const char* key : {"epoch", "batches_delivered"}) about[key] = s.value(key, json());
      about["slowest_samples"] = pipeline.value("slowest_samples", json::array());
    }
  }
  if (meant.means(target_kind::scheduler) && !pool) {
    about["scheduler"] = {{"epoch", s.at("epoch")},
                          {"batches_delivered", s.at("batches_delivered")},
                          {"samples_delivered", s.at("samples_delivered")},
                          {"samples_expected", s.at("samples_expected")},
                          {"failed", s.at("failed")},
                          {"quarantined", s.at("quarantined")},
                          {"slots_per_worker", s.value("slots_per_worker", 0U)},
                          {"batches", pipeline.at("batches")},
                          {"slowest_samples", pipeline.value("slowest_samples", json::array())},
                          {"waits_for", pipeline.at("waits_for")}};
  }
  if (meant.means(target_kind::gpu) && (!pool || meant.kind == target_kind::gpu)) {
    about["gpu"] = s.at("gpu");
    about["gpu"]["bytes_uploaded"] = s.at("bytes_uploaded");
    about["gpu"]["waits_for"] = pipeline.at("waits_for");
  }
  about["workers"] = json::array();
  for (const json& w : s.at("workers")) {
    if (!meant.means_worker(w.at("id").get<std::uint32_t>())) continue;
    about["workers"].push_back(w);
    const json stalled = s.value("stalled", json());
    if (stalled.is_object() && stalled.at("worker") == w.at("id")) about["workers"].back()["stalled"] = stalled;
    for (const json& hung : s.value("hung", json::array())) {
      if (is_current(hung, w)) about["workers"].back()["hung"] = hung;
    }
  }
  return about;
}

json description_of_host(const json& pipeline, const std::string& name) {
  const json& s = pipeline.at("status");
  json about{{"schema", "penstock.describe/1"}, {"session", s.at("session")}, {"state", s.at("state")}};
  if (is_pool(s)) about["pool"] = true;
  about["of"] = words_for(kind_of(s)).name;
  about["hosts"] = json::array();
  about["workers"] = json::array();
  for (const json& host : s.value("hosts", json::array())) {
    if (host.at("name") != name) continue;
    about["hosts"].push_back(host);
    const json& ids = host.at("workers");
    for (const json& w : s.at("workers")) {
      if (std::ranges::find(ids, w.at("id")) != ids.end()) about["workers"].push_back(w);
    }
  }
  return about;
}

std::string no_such_host(const json& status, const std::string& name) {
  std::string known;
  for (const json& host : status.value("hosts", json::array()))
    known += (known.empty() ? "" : ", ") + ("host/" + host.at("name").get<std::string>());
  const json all_lost = list_in(status, "hosts_lost");
  if (const auto lost = std::ranges::find(all_lost, json(name), [](const json& one) { return one.at("name"); }); lost != all_lost.end())
    return fmt::format("host/{} had joined, but was lost {}{}",
                       printable(name), lost_in_words(*lost), known.empty() ? "" : "; available: " + known);
  return fmt::format("there is no host/{}; {}", printable(name), known.empty() ? "no loader host has joined" : "available: " + known);
}

namespace {

class fields {
 public:
  explicit fields(std::size_t width) : width_(width) {}
  void heading(const std::string& text) { out_ += (out_.empty() ? "" : "\n") + fitted(text, width_) + "\n"; }
  void add(const char* name, const std::string& value) {
    const std::string label = fmt::format("  {:<18}", name);
    out_ += label + hanging(value, width_, columns_of(label)) + "\n";
  }
  /// Indented lines of a process's output.
  void quote(const char* name, const std::string& text) {
    bool first = true;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      add(first ? name : "", text.substr(begin, end - begin));
      first = false;
      begin = end + 1;
    }
  }
  [[nodiscard]] std::string text() && { return std::move(out_); }

 private:
  std::size_t width_;
  std::string out_;
};

std::string seconds_for_people(const json& seconds) {
  return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds.get<double>() * 1e9)));
}

/// Output without the lines of a stack, which is shown with the death.
std::string without_stack(const std::string& output) {
  std::string text;
  for (const std::string& line : lines_in(output)) {
    if (!process::is_stack_line(line) && !is_python_stack_line(line)) text += (text.empty() ? "" : "\n") + line;
  }
  return text;
}

void add_death(fields& f, const json& d, bool shows_stack, work_kind kind) {
  const char* const over_work = d.at("attempt") == 0 ? "  worked on" : sender_of(d).empty() ? "  blamed on" : kind == work_kind::jobs ? "  was running" : "  was loading";

  f.add("last death", fmt::format("{} after {}, incarnation {}, pid {}", ending_of(d),
                                  seconds_for_people(d.at("lived_seconds")), text_of(d.at("incarnation")),
                                  text_of(d.at("pid"))));
  if (kind == work_kind::batches && d.contains("job")) {
    const std::string attempt = d.at("attempt") == 0 ? "" : ", attempt " + text_of(d.at("attempt"));
    f.add(over_work, text_of(d.at("work")) + attempt);
  } else if (d.contains("job") && d.at("attempt") == 0) {
    f.add(over_work, fmt::format("job {} ({})", text_of(d.at("job")), text_of(d.at("work"))));
  } else if (d.contains("job")) {
    f.add(over_work, fmt::format("job {} ({}), attempt {}", text_of(d.at("job")), text_of(d.at("work")), text_of(d.at("attempt"))));
  } else if (!d.at("sample").is_null()) {
    const std::string name = d.at("path").is_null() ? std::string() : text_of(d.at("path"));
    const std::string how = d.at("attempt") != 0   ? ", attempt " + text_of(d.at("attempt"))
                            : d.at("seq").is_null() ? ""
                                                    : fmt::format(", in batch {} of epoch {}", text_of(d.at("seq")), text_of(d.at("epoch")));
    f.add(over_work, sample_for_people(d.at("sample"), name) + how);
  } else if (!d.at("path").is_null()) {
    f.add(over_work, sample_for_people(text_of(d.at("path"))));
  }
  if (d.value("reason", json()).is_string()) f.add("  reason", one_line(text_of(d.at("reason"))));
  if (const std::string cost = cost_of_death(d, kind); !cost.empty()) f.add("  cost", cost);
  f.add("  while", text_of(d.at("phase")));
  f.quote("  last output", shows_stack ? without_stack(text_of(d.at("last_output"))) : text_of(d.at("last_output")));
}

void add_state(fields& f, const json& about) {
  f.add("state", state_in_words(about));
  if (const std::string stall = stall_for_people(about); !stall.empty()) f.add("stalled for", stall);
}

void add_slow_samples(fields& f, const json& of) {
  const char* label = "slow samples";
  for (const json& one : of.value("slowest_samples", json::array())) f.add(std::exchange(label, ""), slow_sample_in_words(one));
}

void add_scheduler(fields& f, const json& about, const json& s) {
  f.heading(fmt::format("scheduler of {}", text_of(about.at("session"))));
  add_state(f, about);
  f.add("epoch", text_of(s.at("epoch")));
  f.add("delivered",
        fmt::format("{} of {} in {}", text_of(s.at("samples_delivered")),
                    counted(s.at("samples_expected").get<std::uint64_t>(), "sample"),
                    counted(s.at("batches_delivered").get<std::uint64_t>(), "batch", "batches")));
  f.add("lost",
        fmt::format("{} failed, {} quarantined", counted(s.at("failed").get<std::uint64_t>(), "sample"),
                    text_of(s.at("quarantined"))));
  const json& b = s.at("batches");
  f.add("batches", fmt::format("loading {}, loaded {}, uploading {}, ready {}, in use {}",
                               text_of(b.at("loading")), text_of(b.at("loaded")), text_of(b.at("uploading")),
                               text_of(b.at("ready")), text_of(b.at("in_use"))));
  if (s.value("slots_per_worker", 0U) > 0) f.add("slots", text_of(s.at("slots_per_worker")) + " for each worker");
  f.add("the device waits", "for " + text_of(s.at("waits_for")));
  add_slow_samples(f, s);
}

void add_jobs(fields& f, const json& about, const json& jobs) {
  const work_kind kind = kind_of(about);
  const work_words words = words_for(kind);
  f.heading(fmt::format("{} of {}", words.items, text_of(about.at("session"))));
  add_state(f, about);
  if (kind == work_kind::batches) f.add("epoch", text_of(about.value("epoch", json())));
  f.add("progress", jobs_for_people(about));
  f.add("retried", counted(jobs.at("retried").get<std::uint64_t>(), words.item, words.items));
  if (kind == work_kind::jobs) f.add("arguments", bytes_for_people(jobs.at("argument_bytes").get<std::uint64_t>()));
  if (const auto kept = jobs.at("result_bytes").get<std::uint64_t>(); kept > 0)
    f.add("memory", fmt::format("{} of {} still holds", bytes_for_people(kept), kind == work_kind::jobs ? "results that the caller" : "batches that the program"));
  f.add(kind == work_kind::jobs ? "the pool waits" : "the loader waits", "for " + text_of(about.value("waits_for", json())));
  add_slow_samples(f, about);
  for (const json& one : functions_shown(jobs)) {
    f.add(("  " + text_of(one.at("name"))).c_str(),
          fmt::format("{} waiting, {} running, {} ok, {} failed", text_of(one.at("waiting")),
                      text_of(one.at("running")), text_of(one.at("ok")), text_of(one.at("failed"))));
  }
}

void add_gpu(fields& f, const json& g) {
  f.heading("gpu");
  f.add("state", text_of(g.at("state")));
  const std::string name = text_of(g.at("name"));
  f.add("device", name.empty() ? "none" : fmt::format("{} ({})", name, text_of(g.at("kind"))));
  if (!g.at("uuid").is_null()) f.add("uuid", text_of(g.at("uuid")));
  f.add("placement", fmt::format("{}, pid {}", text_of(g.at("placement")), text_of(g.at("pid"))));
  f.add("uploaded", bytes_for_people(g.at("bytes_uploaded").get<std::uint64_t>()));
  f.add("waits", "for " + text_of(g.at("waits_for")));
  f.add("restarts", text_of(g.at("restarts")));
  if (const json d = g.value("last_death", json()); !d.is_null()) {
    f.add("last death", fmt::format("{} after {}, incarnation {}, pid {}", ending_of(d),
                                    seconds_for_people(d.at("lived_seconds")), text_of(d.at("incarnation")),
                                    text_of(d.at("pid"))));
    if (d.value("reason", json()).is_string()) f.add("  reason", one_line(text_of(d.at("reason"))));
    if (!d.at("seq").is_null())
      f.add("  at", fmt::format("batch {} of epoch {}", text_of(d.at("seq")), text_of(d.at("epoch"))));
    if (d.at("recovered_seconds").is_number())
      f.add("  replaced after", seconds_for_people(d.at("recovered_seconds")) + ", until the first upload by the new one");
    f.quote("  last output", text_of(d.at("last_words")));
  }
}

/// "3 of 4: 2 ready, 1 starting".
std::string workers_of_host(const json& host, const json& workers) {
  std::map<std::string, std::uint64_t> states;
  for (const json& w : workers) {
    const json& ids = host.at("workers");
    if (std::ranges::find(ids, w.at("id")) != ids.end()) ++states[w.at("state").get<std::string>()];
  }
  std::string text;
  for (const auto& [state, count] : states) text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", count, state);
  return fmt::format("{} of {} wanted{}", text_of(host.at("workers_wanted")), text_of(host.at("workers_offered")), text);
}

void add_host(fields& f, const json& host, const json& workers, work_kind kind) {
  const work_words words = words_for(kind);
  f.heading("host/" + text_of(host.at("name")));
  f.add("state", fmt::format("{}, joined {} ago", text_of(host.at("state")), time_since(text_of(host.at("joined")))));
  f.add("process", fmt::format("pid {} at {}, penstock {}, {}", text_of(host.at("pid")), text_of(host.at("address")),
                               text_of(host.at("version")), counted(host.at("cores").get<std::uint64_t>(), "core")));
  f.add("workers", workers_of_host(host, workers));
  f.add("sends", fmt::format("{:.1f} {}/s, {}/s", host.at("samples_per_second").get<double>(), words.items,
                             bytes_for_people(static_cast<std::uint64_t>(host.at("bytes_per_second").get<double>()))));
  f.add("has sent", fmt::format("{}, {}", counted(host.at("samples").get<std::uint64_t>(), words.item, words.items),
                                bytes_for_people(host.at("bytes").get<std::uint64_t>())));
  f.add("round trip", seconds_for_people(host.at("round_trip_seconds")));
  f.add("holds", kind == work_kind::jobs ? counted(host.at("holds").get<std::uint64_t>(), "job")
                      : counted(host.at("holds").get<std::uint64_t>(), "batch", "batches"));
  f.add("deaths", counted(host.at("deaths").get<std::uint64_t>(), "worker"));
  f.add("was lost", counted(host.at("losses").get<std::uint64_t>(), "time"));
  const json& refused = host.at("refused");
  f.add("refused", fmt::format("transfers: {} damaged, {} of the wrong size, {} late", text_of(refused.at("damaged")),
                               text_of(refused.at("wrong_size")), text_of(refused.at("late"))));
}

void add_worker(fields& f, const json& w, work_kind kind) {
  f.heading(worker_name(w));
  f.add("state", state_of(w));
  f.add("process",
        fmt::format("pid {}, incarnation {} ({} in its place so far), {}", text_of(w.at("pid")), text_of(w.at("incarnation")),
                    counted(w.at("incarnation").get<std::uint64_t>(), "process", "processes"),
                    counted(w.at("restarts").get<std::uint64_t>(), "restart")));
  f.add(words_for(kind).items, text_of(w.at("samples")) + " by this incarnation");
  f.add("memory", bytes_for_people(w.at("rss_bytes").get<std::uint64_t>()));
  if (const json over = w.value("over_memory", json()); over.is_object()) f.add("over its limit", text_of(over.at("text")));
  f.add(words_for(kind).doing,
        w.at("current_sample").is_null()
            ? "nothing"
            : work_since(w, kind));
  if (const std::string stall = stall_for_people(w); !stall.empty()) f.add("stalled for", stall);
  if (const json hung = w.value("hung", json()); hung.is_object()) f.add("hung before", hung_for_people(hung, kind));
  if (const json use = w.value("gpu_use", json()); use.is_string()) f.add("uses the GPU", text_of(use));
  std::string output;
  for (const json& line : w.value("output", json::array())) output += line.get<std::string>() + "\n";
  f.quote("output", without_stack(output));
  const json stack = w.value("stack_lines", json::array());
  if (!w.at("last_death").is_null()) add_death(f, w.at("last_death"), !stack.empty(), kind);
  const char* label = "  stack";
  for (const json& line : stack) f.add(std::exchange(label, ""), line.get<std::string>());
}

}  // namespace

std::string description_for_people(const json& about, std::size_t width) {
  fields f(width);
  const work_kind kind = kind_of_answer(about);
  if (const auto s = about.find("scheduler"); s != about.end()) add_scheduler(f, about, *s);
  if (const auto jobs = about.find("jobs"); jobs != about.end()) add_jobs(f, about, *jobs);
  if (const auto g = about.find("gpu"); g != about.end()) add_gpu(f, *g);
  for (const json& host : about.value("hosts", json::array())) add_host(f, host, about.at("workers"), kind);
  for (const json& w : about.at("workers")) add_worker(f, w, kind);
  return std::move(f).text();
}

}  // namespace penstock::cli
