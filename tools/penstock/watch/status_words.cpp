#include "tools/penstock/watch/status_words.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/pauser.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::cli {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string utc_for_people(const json& time) {
  std::string text = text_of(time);
  if (text.size() < 23) return text;
  text[10] = ' ';
  return text.substr(0, 23);
}

std::string without_year(const std::string& time) {
  return time.size() < 19 ? time : time.substr(5, 14);
}

bool is_over_memory(const json& worker) {
  return worker.value("over_memory", json()).is_object();
}

std::string state_of(const json& worker) {
  const json& again = worker.at("next_restart_seconds");
  const json why = worker.value("why_stopped", json());
  if (is_over_memory(worker)) return text_of(worker.at("state")) + " (over the memory limit)";
  if (why.is_string()) return fmt::format("{} ({})", text_of(worker.at("state")), why.get<std::string>());
  if (!again.is_number() || again.get<double>() < 0.05) return text_of(worker.at("state"));
  return fmt::format("{} {:.1f} s", text_of(worker.at("state")), again.get<double>());
}

std::string work_of(const json& worker, work_kind kind) {
  const json& work = worker.at("current_sample");
  return work.is_string() ? std::string(work_for_people(work.get_ref<const std::string&>(), kind)) : std::string();
}

std::string work_since(const json& worker, work_kind kind) {
  const std::string work = work_of(worker, kind);
  const json of_work = kind == work_kind::batches ? worker.value("current_work_seconds", json()) : json();
  const json& seconds = of_work.is_number() ? of_work : worker.at("current_sample_seconds");
  if (work.empty() || !seconds.is_number()) return work.empty() ? "-" : work;
  const std::string time = duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds.get<double>() * 1e9)));
  return kind == work_kind::batches && !of_work.is_number() ? batch_work_since(work, time) : fmt::format("{} for {}", work, time);
}

std::string age_in_words(double seconds) {
  return seconds < 1 ? "0 s" : duration_for_people(std::chrono::seconds(static_cast<std::int64_t>(seconds)));
}

std::string state_in_words(const json& answer) {
  const json stops = answer.value("stopping_seconds", json());
  const std::string since = stops.is_number() ? fmt::format(" for {:.0f} s", stops.get<double>()) : "";
  return text_of(answer.at("state")) + since + (is_stalled(answer) ? ", stalled" : "");
}

bool is_paused_by_operator(const json& answer) {
  const json by = answer.value("paused_by", json());
  return answer.at("state") == "paused" && (!by.is_string() || pauser_of(by.get_ref<const std::string&>()) == pauser::operator_);
}

std::string without_way_out(std::string text) {
  text.resize(std::min({text.size(), text.find("; restarting a worker"), text.find("; `penstock")}));
  return text;
}

std::string hung_for_people(const json& hung, work_kind kind) {
  const std::string name = text_of(hung.at("name"));
  const std::string what = kind == work_kind::jobs ? fmt::format("job {} ({})", text_of(hung.at("job")), name) : sample_for_people(name);
  return fmt::format("{} hung {}", kind == work_kind::batches ? name : what, text_of(hung.at("text")));
}

work_kind kind_of(const json& status) {
  const json jobs = status.value("jobs", json());
  return !jobs.is_object() ? work_kind::samples : jobs.value("of_batches", false) ? work_kind::batches : work_kind::jobs;
}

work_kind kind_of_answer(const json& answer) {
  const json of = answer.value("of", json());
  for (const work_kind kind : {work_kind::jobs, work_kind::batches}) {
    if (of == words_for(kind).name) return kind;
  }
  return work_kind::samples;
}

bool is_stalled(const json& status) {
  return status.value("stalled", json()).is_object();
}

bool is_moving(const json& status) {
  return !is_stalled(status) && status.value("state", json()) != "paused";
}

std::optional<double> seconds_left(const json& status) {
  const json left = status.value("eta_seconds", json());
  return left.is_number() && is_moving(status) ? std::optional(left.get<double>()) : std::nullopt;
}

std::string time_left_of(const json& status) {
  const auto left = seconds_left(status);
  if (!left) return "";
  if (*left > 0 && *left <= 1) return "less than 1 s left";  // eta_seconds is rounded up
  return duration_for_people(std::chrono::seconds(static_cast<std::int64_t>(std::ceil(*left)))) + " left";
}

bool is_pool(const json& status) {
  return kind_of(status) != work_kind::samples;
}

std::string jobs_for_people(const json& status) {
  const json& jobs = status.at("jobs");
  if (kind_of(status) == work_kind::batches) {
    // A batch fails after several deaths, after each timeout, or without a death.
    const auto failed = std::max(jobs.at("failed").get<std::uint64_t>(), jobs.at("retried").get<std::uint64_t>());
    return fmt::format("{} delivered, {} loading, {} waiting for a worker{}",
                       counted(status.value("batches_delivered", std::uint64_t{0}), "batch", "batches"), text_of(jobs.at("running")),
                       text_of(jobs.at("waiting")), failed == 0 ? "" : ", " + counted(failed, "failed try", "failed tries"));
  }
  const auto cancelled = jobs.value("cancelled", std::uint64_t{0});
  const auto nonzero_exits = jobs.value("nonzero_exits", std::uint64_t{0});
  return fmt::format("{} submitted, {} waiting, {} running, {} ok{}, {} failed{}", counted(jobs.at("submitted").get<std::uint64_t>(), "job"), text_of(jobs.at("waiting")),
                     text_of(jobs.at("running")), text_of(jobs.at("ok")), nonzero_exits == 0 ? "" : fmt::format(" ({} of them exited with a code other than 0)", nonzero_exits),
                     text_of(jobs.at("failed")), cancelled == 0 ? "" : fmt::format(", {} cancelled", cancelled));
}

std::string percent_of(double part) {
  constexpr double rounding = 1e-6;  // 0.29 * 100 is below 29
  return fmt::format("{:.0f} %", std::floor(std::min(part, 1.0) * 100 + rounding));
}

std::string percent_of(const json& status) {
  return percent_of(status.at("progress").get<double>());
}

std::string progress_of_jobs(const json& status) {
  const json& jobs = status.at("jobs");
  if (jobs.value("of_batches", false))
    return fmt::format("{}, {}epoch {}", counted(status.value("batches_delivered", std::uint64_t{0}), "batch", "batches"),
                       status.value("progress", json()).is_number() ? percent_of(status) + " of " : "", status.value("epoch", std::uint64_t{0}));
  std::uint64_t ended = 0;
  for (const char* how : {"ok", "failed", "cancelled"}) ended += jobs.value(how, std::uint64_t{0});
  return fmt::format("{} of {}", ended, counted(jobs.at("submitted").get<std::uint64_t>(), "job"));
}

std::string position_of(const json& status) {
  if (kind_of(status) != work_kind::samples) return progress_of_jobs(status);
  const auto number = [&](const char* key) { return status.value(key, std::uint64_t{0}); };
  const std::uint64_t expected = number("samples_expected");
  const std::string done = expected == 0 ? counted(number("samples_delivered"), "sample") : fmt::format("{} of {}", number("samples_delivered"), counted(expected, "sample"));
  return fmt::format("epoch {}, {} delivered", number("epoch"), done);
}

json functions_shown(const json& jobs) {
  const json all = jobs.value("functions", json::array());
  const bool of_python = all.size() == 1 && all.front().at("name") == "call";
  return of_python ? json::array() : all;
}

std::string worker_name(const json& one) {
  const json& id = one.contains("worker") ? one.at("worker") : one.at("id");
  return "worker/" + text_of(id) + (one.value("sacrificial", false) ? " (sacrificial)" : "");
}

std::string worker_cell(const json& one) {
  const json& id = one.contains("worker") ? one.at("worker") : one.at("id");
  return "worker/" + text_of(id) + (one.value("sacrificial", false) ? "*" : "");
}

bool is_not_needed(const json& worker) {
  return worker.value("sacrificial", false) && worker.at("state") == "stopped";
}

std::string stall_for_people(const json& status) {
  const json stalled = status.value("stalled", json());
  if (!stalled.is_object()) return "";
  const std::string text = text_of(stalled.at("text"));
  return fmt::format("{:.0f} s, {}", stalled.at("seconds").get<double>(), status.value("state", "") == "ended" ? without_way_out(text) : text);
}

std::string deaths_in(const json& session) {
  const json workers = session.at("workers_ended_unexpectedly");
  const json owners = session.at("owners_ended_unexpectedly");
  if (!workers.is_number()) return "-";
  return std::to_string(workers.get<std::uint64_t>() + (owners.is_number() ? owners.get<std::uint64_t>() : 0));
}

}  // namespace penstock::cli
