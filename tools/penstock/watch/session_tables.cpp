#include "tools/penstock/watch/session_tables.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/host_tables.hpp"
#include "tools/penstock/watch/sample_history.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

std::string last_death_of(const json& worker, work_kind kind) {
  const json& d = worker.at("last_death");
  return d.is_null() ? "-" : death_in_a_cell(d, kind);
}

/// NVML's list. In a container its pids may belong to another pid namespace; the owner's is then missing from
/// it.
std::string processes_on_gpu(const json& gpu) {
  std::string list;
  bool owner_is_there = false;
  for (const json& p : gpu.at("processes")) {
    const bool is_owner = p.at("pid") == gpu.at("pid");
    owner_is_there |= is_owner;
    list += fmt::format("{}pid {}{} ({})", list.empty() ? "" : ", ", text_of(p.at("pid")),
                        is_owner ? ", the owner" : "", bytes_for_people(p.at("bytes").get<std::uint64_t>()));
  }
  return fmt::format("gpu  processes according to NVML: {}{}", list.empty() ? "none" : list,
                     list.empty() || owner_is_there ? "" : "; these pids are from another pid namespace");
}

std::string functions_for_people(const json& jobs, std::size_t width) {
  std::vector<std::vector<std::string>> rows;
  for (const json& f : functions_shown(jobs)) {
    rows.push_back({text_of(f.at("name")), text_of(f.at("waiting")), text_of(f.at("running")),
                    text_of(f.at("ok")), text_of(f.at("failed")), text_of(f.at("retried"))});
  }
  if (rows.empty()) return "";
  return text_table({{"function", column_side::left, true},
                     {"waiting", column_side::right},
                     {"running", column_side::right},
                     {"ok", column_side::right},
                     {"failed", column_side::right},
                     {"retried", column_side::right}},
                    rows, width);
}

/// "34 %  1200 samples/s  3 min left  up for 12 min  photos.toml". Sessions of older versions report none of
/// this.
std::string progress_for_people(const json& s) {
  std::vector<std::string> parts;
  const auto number = [&](const char* key) { return s.value(key, json()); };
  const work_words words = words_for(kind_of(s));
  const bool of_batches = kind_of(s) == work_kind::batches;
  const std::string of_epoch = of_batches ? fmt::format(" of epoch {}", s.value("epoch", std::uint64_t{0})) : "";
  if (number("progress").is_number()) parts.push_back(percent_of(s) + of_epoch);
  if (is_moving(s) && number("rate").is_number())
    parts.push_back(counted(static_cast<std::uint64_t>(std::llround(number("rate").get<double>())),
                            words.item, words.items) +
                    "/s");
  if (const std::string left = time_left_of(s); !left.empty()) parts.push_back(left + (of_batches ? " in it" : ""));
  if (number("uptime_seconds").is_number() && number("uptime_seconds") > 0) {
    const bool over = s.value("outcome", "running") != "running";
    const double seconds = number("uptime_seconds").get<double>();
    parts.push_back(over ? "ran for " + duration_for_people(nanoseconds(std::llround(seconds * 1e9))) : "up for " + age_in_words(seconds));
  }
  if (number("config_file").is_string()) parts.push_back(text_of(number("config_file")));
  std::string line;
  for (const std::string& part : parts) line += (line.empty() ? "" : "  ") + part;
  return line;
}

void add_progress(std::string& out, const json& s, std::size_t width) {
  if (const std::string line = progress_for_people(s); !line.empty()) out += wrapped(line, width, 2) + "\n";
}

std::string pause_for_people(const json& s) {
  const json by = s.value("paused_by", json());
  return by.is_string() ? "paused by " + text_of(by) : "";
}

void add_pool(std::string& out, const json& s, std::size_t width) {
  out += wrapped(fmt::format("{}  {}  pid {}  {}", text_of(s.at("session")), state_in_words(s),
                            text_of(s.at("pid")), jobs_for_people(s)),
                 width, 2) +
         "\n";
  add_progress(out, s, width);
  if (const std::string stall = stall_for_people(s); !stall.empty())
    out += wrapped("stalled for " + stall, width, 2) + "\n";
  if (const std::string pause = pause_for_people(s); !pause.empty()) out += wrapped(pause, width, 2) + "\n";
  out += functions_for_people(s.at("jobs"), width);
}

std::string group_for_people(const json& g) {
  std::string text = fmt::format("group  {}  rank {} of {}  {}", text_of(g.at("name")), text_of(g.at("rank")),
                                 text_of(g.at("world_size")), text_of(g.at("phase")));
  if (g.at("generation") != 0) text += fmt::format("  generation {}", text_of(g.at("generation")));
  if (!g.at("waits_for").is_null()) text += "  waits for " + text_of(g.at("waits_for"));
  if (const json& cause = g.at("first_cause"); cause.is_object())
    text += fmt::format("  rank {}: {}", text_of(cause.at("rank")), text_of(cause.at("cause")));
  return text;
}

/// How the previous process of this rank ended, if `penstock launch` has replaced it.
std::string predecessor_for_people(const json& g) {
  json last;
  std::uint64_t count = 0;
  for (const json& one : g.value("lost", json::array())) {
    if (one.at("rank") != g.at("rank")) continue;
    last = one;
    ++count;
  }
  if (count == 0) return "";
  const std::string pid = last.at("pid").is_number() ? fmt::format(" (pid {})", text_of(last.at("pid"))) : "";
  return fmt::format("started again {}: the previous process{} was lost at {} UTC: {}", counted(count, "time"), pid, without_year(utc_for_people(last.at("time"))),
                     text_of(last.at("end")));
}

/// For a live session whose stream is over; otherwise empty.
std::string held_for_people(const json& s) {
  if (s.value("outcome", "running") != "finished" || s.at("state") == "ended") return "";
  return fmt::format("finished: everything is delivered; the session stays open until the program (pid {}) closes it",
                     text_of(s.at("pid")));
}

/// How the number of workers is tuned; empty if it is not.
std::string tuning_for_people(const json& s) {
  const json tuning = s.value("tuning", json());
  if (!tuning.is_object() || tuning.at("state") == "off" || s.at("state") == "ended") return "";
  const std::string number = counted(tuning.at("workers").get<std::uint64_t>(), "worker");
  return fmt::format("{} {}: {}", tuning.at("state") == "searching" ? "looking for the best number, now" : "tuned to", number,
                     text_of(tuning.at("why")));
}

void add_stream(std::string& out, const json& s, std::size_t width) {
  const auto line = [&](const std::string& text) { out += wrapped(text, width, 2) + "\n"; };
  line(fmt::format("{}  {}  pid {}  epoch {}  {}, {} delivered", text_of(s.at("session")), state_in_words(s),
                   text_of(s.at("pid")), text_of(s.at("epoch")),
                   counted(s.at("batches_delivered").get<std::uint64_t>(), "batch", "batches"),
                   counted(s.at("samples_delivered").get<std::uint64_t>(), "sample")) +
       (s.value("samples_before", std::uint64_t{0}) > 0 ? fmt::format(", {} before this run", text_of(s.at("samples_before"))) : ""));
  add_progress(out, s, width);
  if (const json group = s.value("group", json()); group.is_object()) {
    line(group_for_people(group));
    if (const std::string predecessor = predecessor_for_people(group); !predecessor.empty()) line(predecessor);
  }
  if (const std::string stall = stall_for_people(s); !stall.empty()) line("stalled for " + stall);
  if (const std::string pause = pause_for_people(s); !pause.empty()) line(pause);
  if (const std::string held = held_for_people(s); !held.empty()) line(held);
  if (const std::string tuned = tuning_for_people(s); !tuned.empty()) line(tuned);
}

void add_gpu(std::string& out, const json& gpu, std::size_t width) {
  const auto restarts = gpu.value("restarts", std::uint64_t{0});
  const json died = gpu.value("last_death", json());
  const std::string why = died.is_object() ? reason_of_death(died) : std::string();
  out += wrapped(fmt::format("gpu  {}  {}  {}  pid {}{}", text_of(gpu.at("state")), text_of(gpu.at("name")),
                            text_of(gpu.at("placement")), text_of(gpu.at("pid")),
                            restarts == 0 ? "" : "  " + counted(restarts, "restart")) +
                    (died.is_object() ? fmt::format("  last death {}{}", ending_of(died), why.empty() ? "" : ": " + why) : ""),
                 width, 2) +
         "\n";
  if (gpu.contains("processes") && gpu.at("processes").is_array())
    out += wrapped(processes_on_gpu(gpu), width, 2) + "\n";
}

/// `all`: the target names no single worker; omits a worker that is not needed.
void add_workers(std::string& out, const json& s, bool all, std::size_t width) {
  const work_kind kind = kind_of(s);
  const bool pool = kind != work_kind::samples;
  bool starred = false;
  bool replaced = false;
  std::vector<std::vector<std::string>> rows;
  for (const json& w : s.at("workers")) {
    if (all && is_not_needed(w)) continue;
    starred |= w.value("sacrificial", false);
    replaced |= w.value("incarnation", 1) > 1;
    rows.push_back({worker_cell(w), state_of(w), text_of(w.at("pid")), text_of(w.at("restarts")),
                    text_of(w.at("samples")), bytes_for_people(w.at("rss_bytes").get<std::uint64_t>()),
                    last_death_of(w, kind)});
    if (pool) rows.back().push_back(work_since(w, kind));
  }
  if (rows.empty()) return;
  std::vector<table_column> columns{{"worker"},
                                    {"state", column_side::left, true},
                                    {"pid", column_side::right},
                                    {"restarts", column_side::right},
                                    {words_for(kind).items, column_side::right},
                                    {"memory", column_side::right, false, true},
                                    {.title = "last death", .wraps = true}};
  if (pool) columns.push_back({.title = words_for(kind).doing, .wraps = true});
  out += text_table(columns, rows, width);
  if (replaced) out += wrapped(fmt::format("{}: those of each worker's latest process", words_for(kind).items), width, 2) + "\n";
  if (starred) out += wrapped(star_explained, width, 2) + "\n";
}

/// Adds the work that has hung, unless the stall names it, and the cost of deaths.
void add_hangs_and_deaths(std::string& out, const json& s, std::size_t width) {
  constexpr std::size_t hung_shown = 3;
  const json hung = s.value("hung", json::array());
  const json stall = s.value("stalled", json());
  const bool is_said = stall.is_object() && stall.value("hung_before", 0) > 0;
  for (std::size_t i = hung.size() - std::min(hung.size(), hung_shown); i < hung.size() && !is_said; ++i)
    out += wrapped(s.at("state") == "ended" ? without_way_out(hung_for_people(hung[i], kind_of(s))) : hung_for_people(hung[i], kind_of(s)), width, 2) + "\n";
  const json cost = s.value("deaths_cost", json());
  const bool some = s.value("workers_ended_unexpectedly", std::uint64_t{0}) + s.at("gpu").value("ended_unexpectedly", std::uint64_t{0}) > 0;
  if (const std::string text = some ? cost_of_deaths(cost, kind_of(s)) : ""; !text.empty()) out += wrapped(text, width, 2) + "\n";
}

}  // namespace

std::string status_for_people(const json& s, const target& meant, std::size_t width) {
  std::string out;
  const bool pool = is_pool(s);
  if (meant.means(target_kind::scheduler)) pool ? add_pool(out, s, width) : add_stream(out, s, width);
  // A pool shows its GPU only if the target names it.
  if (meant.means(target_kind::gpu) && (!pool || meant.kind == target_kind::gpu))
    add_gpu(out, s.at("gpu"), width);
  if (meant.kind == target_kind::all) out += hosts_for_people(s, width);
  add_workers(out, s, meant.kind != target_kind::worker, width);
  if (meant.kind == target_kind::all) add_hangs_and_deaths(out, s, width);
  if (const std::string lost = lost_for_people(s); meant.kind == target_kind::all && !lost.empty()) out += wrapped(lost, width, 2) + "\n";
  return out;
}

namespace {

json last_death_in(const json& workers) {
  json last;
  for (const json& w : workers) {
    const json& death = w.at("last_death");
    if (death.is_object() && (last.is_null() || last.at("time").get<std::string>() < death.at("time").get<std::string>())) last = death;
  }
  return last;
}

}  // namespace

std::string hint_after_status(const json& s) {
  // Report what the session waits for now before earlier deaths.
  if (const json stopping = s.value("stopping", json()); stopping.is_array() && !stopping.empty()) {
    const std::string target = text_of(stopping.front().at("target"));
    return target.starts_with("worker/") || target == "gpu" ? "penstock describe " + target : "";
  }
  if (const json stalled = s.value("stalled", json());
      stalled.is_object() && s.at("state") != "paused") {
    return stalled.at("kind") == "gpu" ? "penstock describe gpu" : "penstock why";
  }
  for (const json& w : s.at("workers")) {
    if (w.at("state") == "failed") return "penstock restart worker/" + text_of(w.at("id"));
  }
  if (const json last = last_death_in(s.at("workers")); last.is_object()) return look_into(last);
  if (const json last = s.value("last_failure", json()); last.is_object() && last.at("sample").is_number())
    return "penstock describe sample/" + text_of(last.at("sample"));
  return is_paused_by_operator(s) ? "penstock resume" : "";
}

std::string event_for_people(const json& e, std::size_t width) {
  constexpr std::size_t usual = 100;  // narrower lines leave out the year and milliseconds, for more of the text
  const std::string whole_time = utc_for_people(e.at("time"));
  const std::string time = width == 0 || width >= usual ? whole_time : without_year(whole_time);
  const std::string who = e.at("worker").is_number() ? "worker/" + text_of(e.at("worker")) : "session";
  const std::string facts = fmt::format("{}  {:<10} {:<19} ", time, who, text_of(e.at("kind")));
  return facts + hanging(one_line(text_of(e.at("text"))), width, columns_of(facts));
}

}  // namespace penstock::cli
