#include "tools/penstock/watch/death_tables.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/one_line.hpp"
#include "runtime/base/units.hpp"
#include "runtime/process/crash_notes.hpp"
#include "tools/penstock/text_table.hpp"
#include "tools/penstock/watch/status_words.hpp"

#include <penstock/report.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace penstock::cli {

using json = nlohmann::ordered_json;

namespace {

std::string last_line(const std::string& text) {
  return text.substr(text.rfind('\n') + 1);  // npos wraps to 0: the whole text
}

}  // namespace

bool was_killed_at_stop(const json& death) {
  return death.is_object() && death.value("ignored_stop_seconds", json()).is_number();
}

std::string ending_of(const json& d) {
  const std::string cause = text_of(d.at("cause"));
  if (was_killed_at_stop(d)) return "killed at stop";
  if (cause == "host") return "lost with its host";
  if (cause == "exit") return "exit " + text_of(d.at("code"));
  if (ended_as_asked(d)) return "stopped (ordered)";
  return cause == "signal" ? text_of(d.at("signal")) : cause;
}

bool is_unexpected_death(const json& d) {
  const std::string cause = d.value("cause", "");
  for (std::size_t i = 0; i <= static_cast<std::size_t>(death_cause::unknown); ++i) {
    if (const auto known = static_cast<death_cause>(i); cause == name_of(known)) return is_unexpected(known);
  }
  return true;  // a newer version of penstock recorded the death
}

bool ended_as_asked(const json& death) {
  return death.value("cause", "") == "stopped" && !was_killed_at_stop(death);
}

json deaths_by_cause(const json& deaths) {
  json counts = json::object();
  for (const json& d : deaths) {
    const std::string cause = d.value("cause", "unknown");
    if (ended_as_asked(d)) continue;
    counts[cause] = counts.value(cause, std::uint64_t{0}) + 1;
  }
  return counts;
}

std::string cost_of_death(const json& d, work_kind kind) {
  const auto held = d.value("held", std::uint64_t{0});
  return held == 0 ? "" : repeated_in_words(held, d.value("held_again", std::uint64_t{0}), kind);
}

std::string cost_of_deaths(const json& cost, work_kind kind) {
  if (!cost.is_object()) return "";
  const bool of_jobs = kind == work_kind::jobs;
  const std::string_view who = kind == work_kind::batches ? "loop" : "stream";
  const auto quarantined = cost.at("quarantined").get<std::uint64_t>();
  const auto repeated = cost.at("repeated").get<std::uint64_t>();
  const auto repetitions = cost.value("repetitions", repeated);
  const json& waited = cost.at("waited_seconds");
  const bool has_waited = waited.is_number() && waited.get<double>() >= 0.001;
  std::vector<std::string> parts;
  if (quarantined > 0)
    parts.push_back("deaths cost " + (of_jobs ? counted(quarantined, "job, which is poisoned", "jobs, which are poisoned")
                                              : counted(quarantined, "sample, which is quarantined", "samples, which are quarantined")));
  else if (lost_with_batches(cost).empty())  // otherwise deaths may have cost these samples
    parts.emplace_back(of_jobs ? "deaths cost no job" : "deaths cost no sample");
  if (repeated > 0)
    parts.push_back(of_jobs ? fmt::format("{} again", counted(repeated, "job was run", "jobs were run"))
                            : fmt::format("{} again{}", counted(repeated, "batch was loaded", "batches were loaded"),
                                          repetitions == repeated ? "" : fmt::format(", {} times in all", repetitions)));
  if (waited.is_number())
    parts.push_back(has_waited ? fmt::format("the {} waited {} because of them", who,
                                             duration_for_people(nanoseconds(static_cast<std::int64_t>(waited.get<double>() * 1e9))))
                               : fmt::format("the {} did not wait", who));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string lost_with_batches(const json& cost) {
  const auto lost = cost.is_object() ? cost.value("lost", std::uint64_t{0}) : 0;
  return lost == 0 ? "" : counted(lost, "sample was", "samples were") + " lost with batches that raised an exception";
}

std::string losses_in_words(const json& cost) {
  const auto failed = cost.is_object() ? cost.value("failed", std::uint64_t{0}) : 0;
  std::string text = lost_with_batches(cost);
  if (failed > 0) text += (text.empty() ? "" : "; ") + counted(failed, "sample failure") + " without a death";
  return text.empty() ? "" : text + " (`penstock events`)";
}

/// Suggests the stacks if the worker wrote its own, otherwise `logs`, or `describe` if the process wrote nothing, as after SIGKILL.
std::string look_into(const json& death) {
  const bool of_worker = death.contains("worker");
  if (of_worker && !death.value("stack", json::array()).empty()) return "penstock deaths --stacks";
  const std::string target = of_worker ? "worker/" + text_of(death.at("worker")) : "gpu";
  const bool crashed = death.at("cause") == "signal" && death.at("signal") != "SIGKILL" && sender_of(death).empty();  // such a worker wrote its stack
  const bool wrote =
      crashed || !death.at(of_worker ? "last_output" : "last_words").get<std::string>().empty();
  return wrote ? fmt::format("penstock logs {} --previous", target) : "penstock describe " + target;
}

json all_deaths(const json& answer) {
  json all = json::array();
  for (const json& list : {answer.at("deaths"), answer.value("owner_deaths", json::array())}) all.insert(all.end(), list.begin(), list.end());
  std::stable_sort(all.begin(), all.end(), [](const json& one, const json& other) {
    return one.at("time").get<std::string>() < other.at("time").get<std::string>();
  });
  return all;
}

std::string hint_after_deaths(const json& deaths, bool has_stacks) {
  const auto last = std::find_if_not(deaths.rbegin(), deaths.rend(), ended_as_asked);
  const std::string next = last == deaths.rend() ? "" : look_into(*last);
  return has_stacks && next == "penstock deaths --stacks" ? "" : next;
}

std::string sender_of(const json& death) {
  const json reason = death.value("reason", json());
  return reason.is_string() ? std::string(sender_in(death.value("cause", "") == "signal", reason.get_ref<const std::string&>())) : std::string();
}

std::string work_at_death(const json& d, work_kind kind) {
  const auto known = [&d](const char* key) { return !d.value(key, json()).is_null(); };
  if (kind == work_kind::batches) return known("work") ? doing_in_words(text_of(d.at("work"))) : "";
  if (kind == work_kind::jobs) return known("job") ? "running job " + text_of(d.at("job")) : "";
  return known("sample") ? "loading sample " + text_of(d.at("sample")) : "";
}

std::string death_in_a_cell(const json& d, work_kind kind) {
  const std::string doing = work_at_death(d, kind);
  if (const std::string sender = sender_of(d); !sender.empty()) return fmt::format("{}, {}{}{}", ending_of(d), sender, doing.empty() ? "" : "; was ", doing);
  if (doing.empty()) return ending_of(d);
  if (kind == work_kind::batches) return ending_of(d) + " on " + text_of(d.at("work"));
  return kind == work_kind::jobs ? fmt::format("{} in job {}", ending_of(d), text_of(d.at("job"))) : fmt::format("{} on {}", ending_of(d), text_of(d.at("sample")));
}

std::string reason_of_death(const json& death) {
  if (const json reason = death.value("reason", json()); reason.is_string()) return one_line(text_of(reason));
  const json words = death.value("last_words", json());
  return words.is_string() ? last_line(words.get<std::string>()) : "";
}

namespace {

std::string with_commas(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() || part.empty() ? "" : ", ") + part;
  return text;
}

std::string or_dash(std::string text) {
  return text.empty() ? "-" : text;
}

/// What the process was working on: a sample's path or a pool's work; null if there is none, or if it only repeats the sample's number.
json named_work(const json& d, work_kind kind) {
  const json name = d.value(kind == work_kind::samples ? "path" : "work", json());
  const bool adds_nothing = name == "" || (kind == work_kind::samples && name == "sample " + text_of(d.value("sample", json())));
  return adds_nothing ? json() : name;
}

/// The work and the reason: "cats/tom.jpg", "cats/tom.jpg; REASON", or for a signal with a known sender
/// "was loading cats/tom.jpg; sent by another process ...".
std::string work_and_why(const json& d, work_kind kind) {
  const json work = named_work(d, kind);
  const std::string reason = reason_of_death(d);
  if (work.is_null()) return or_dash(reason);
  if (reason.empty() || d.at("cause") == "hang") return text_of(work);  // the reason of a hang repeats the work
  if (sender_of(d).empty() && d.at("cause") != "memory") return text_of(work) + "; " + reason;
  return fmt::format("was {} {}; {}", kind == work_kind::jobs ? "running" : "loading", text_of(work), reason);
}

std::string replaced_after(const json& owner_death) {
  const json seconds = owner_death.value("recovered_seconds", json());
  if (!seconds.is_number()) return "";
  return "replaced after " + duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds.get<double>() * 1e9)));
}

}  // namespace

std::string deaths_for_people(const json& deaths, work_kind kind, std::size_t width) {
  const bool pool = kind != work_kind::samples;
  const char* const number = pool ? "job" : "sample";
  bool starred = false;
  bool has_reasons = false;
  bool has_names = false;
  std::vector<std::vector<std::string>> rows;
  for (const json& d : deaths) {
    const std::string at = without_year(utc_for_people(d.at("time")));
    const std::string lived = duration_for_people(
        nanoseconds(static_cast<std::int64_t>(d.at("lived_seconds").get<double>() * 1e9)));
    if (!d.contains("worker")) {
      has_reasons = true;
      const std::string reason = reason_of_death(d);
      const json batch = d.value("seq", json());
      const std::string where = batch.is_null() ? "" : fmt::format("at batch {} of epoch {}", text_of(batch), text_of(d.at("epoch")));
      rows.push_back({at, "gpu", text_of(d.at("pid")), ending_of(d), lived, "-", "-",
                      or_dash(with_commas({reason, where, replaced_after(d)}))});
      continue;
    }
    starred |= d.value("sacrificial", false);
    const json work = named_work(d, kind);
    const std::string why = work_and_why(d, kind);
    has_names |= !work.is_null();
    has_reasons |= why != text_of(work);
    rows.push_back({at, worker_cell(d), text_of(d.at("pid")), ending_of(d), lived,
                    text_of(d.value(number, json())),
                    d.at("attempt") == 0 ? "-" : text_of(d.at("attempt")), why});
  }
  const bool of_batches = kind == work_kind::batches;
  const std::string what = of_batches ? "while loading" : pool ? "work" : "path";
  const std::string last = !has_names ? "why" : has_reasons ? what + ", or why" : what;
  std::string out = text_table({{"time (UTC)"},
                                {"process"},
                                {"pid", column_side::right, false, true},
                                {"ended by"},
                                {"lived", column_side::right},
                                {.title = number, .side = column_side::right, .shown = !of_batches},  // users of a DataLoader see no job numbers
                                {"attempt", column_side::right, false, true},
                                {.title = last, .wraps = true, .shown = has_names || has_reasons}},
                               rows, width);
  if (starred) out += wrapped(star_explained, width, 2) + "\n";
  return out;
}

namespace {

/// "read at data.py:12", from a line of a stack that Python wrote; empty for other lines. (A traceback has "line 12, in read".)
std::string python_frame(std::string_view line) {
  constexpr std::string_view file = "  File \"";
  constexpr std::string_view number = "\", line ";
  constexpr std::string_view function = " in ";
  const std::size_t path_end = line.starts_with(file) ? line.find(number) : std::string_view::npos;
  if (path_end == std::string_view::npos) return "";
  const std::size_t number_begin = path_end + number.size();
  const std::size_t number_end = std::min(line.find_first_not_of("0123456789", number_begin), line.size());
  if (!line.substr(number_end).starts_with(function)) return "";
  return fmt::format("{} at {}:{}", line.substr(number_end + function.size()), line.substr(file.size(), path_end - file.size()),
                     line.substr(number_begin, number_end - number_begin));
}

}  // namespace

bool is_python_stack_line(std::string_view line) {
  return line == process::python_stack_begin || !python_frame(line).empty();
}

std::vector<std::string> python_frames_in(std::string_view last_output) {
  std::vector<std::string> frames;
  const std::size_t stack = last_output.rfind(process::python_stack_begin);
  if (stack == std::string_view::npos) return frames;
  std::istringstream lines(std::string(last_output.substr(stack)));
  std::string line;
  std::getline(lines, line);  // python_stack_begin
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (std::string frame = python_frame(line); !frame.empty()) frames.push_back(std::move(frame));
  }
  return frames;
}

std::vector<std::string> frames_before_interpreter(std::vector<std::string> stack) {
  const auto of_interpreter = [](const std::string& frame) {
    const std::string module = frame.substr(0, frame.rfind("+0x"));
    const std::string name = module.substr(module.rfind('/') + 1);
    return name.starts_with("python") || name.starts_with("libpython");
  };
  stack.erase(std::ranges::find_if(stack, of_interpreter), stack.end());
  return stack;
}

}  // namespace penstock::cli
