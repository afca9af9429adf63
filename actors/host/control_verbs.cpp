#include "actors/host/control_verbs.hpp"

#include "actors/host/log_verb.hpp"
#include "actors/host/pipeline_view.hpp"
#include "runtime/base/exit_codes.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_list.hpp"
#include "runtime/supervision/hang_history.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace penstock::host {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t events_in_an_answer = 500;
constexpr std::size_t passages_in_an_answer = 1000;

double tenths_of_seconds(nanoseconds time) {
  return std::round(std::chrono::duration<double>(time).count() * 10) / 10;
}

bool is_ready(const session_status& s) {
  const auto wanted = [](const worker_status& w) { return w.state != child_state::stopped; };
  return (s.jobs || s.gpu_state == child_state::ready) && std::ranges::any_of(s.workers, wanted) &&
         std::ranges::all_of(s.workers,
                             [&](const worker_status& w) { return !wanted(w) || w.state == child_state::ready; });
}

control::answer wait_for(const std::string& what, bool last_call, const session_status& s, const char* ends) {
  const bool over = s.outcome != run_outcome::running;
  const bool met = what == "ready"   ? is_ready(s) || s.outcome == run_outcome::finished
                   : what == "ended" ? over || last_call
                                     : s.outcome == run_outcome::finished;
  if (what != "ready" && what != "finished" && what != "ended") {
    return control::refusal(exit_codes::refused, "usage",
                            fmt::format("cannot wait for '{}'; choose ready, finished or ended", what));
  }
  if (met) {
    return control::good_answer({{"schema", "penstock.wait/1"},
                                 {"waited_for", what},
                                 {"outcome", name_of(s.outcome)},
                                 {"ends", ends}});
  }
  if (!over && !last_call) return std::nullopt;
  json no = control::refusal(
      exit_codes::not_met, "not_met",
      fmt::format("the {} ended in the state '{}', not {}", words_for(kind_of_work(s.jobs)).run, name_of(s.outcome), what));
  no.at("error")["ends"] = ends;
  return no;
}

std::vector<std::uint32_t> ids_of(const std::vector<worker_status>& workers) {
  std::vector<std::uint32_t> ids;
  for (const worker_status& w : workers) ids.push_back(w.id);
  return ids;
}

/// The worker that a request names, or the reason why there is none.
struct target {
  std::optional<std::uint32_t> worker;
  json refused;
};

target worker_of(const json& request, const session_status& s) {
  const json number = request.value("worker", json());
  if (!number.is_number_unsigned())
    return {std::nullopt, control::refusal(exit_codes::refused, "usage", "'worker' must be a number")};
  const auto worker = number.get<std::uint64_t>();
  if (std::ranges::none_of(s.workers, [&](const worker_status& w) { return w.id == worker; })) {
    return {std::nullopt,
            control::refusal(exit_codes::no_target, "no_target", fmt::format("there is no worker/{}{}", worker, other_workers(ids_of(s.workers))))};
  }
  return {static_cast<std::uint32_t>(worker), {}};
}

/// Marks each worker, or each death, that belongs to the sacrificial worker.
void mark_sacrificial(json& list, const char* id, const session_controls& controls) {
  for (json& one : list) one["sacrificial"] = one.at(id).get<std::uint32_t>() == controls.workers_max;
}

json paused_by(const session_status& status, const session_controls& controls) {
  const auto who = status.state == session_state::paused && controls.paused_by ? controls.paused_by() : std::nullopt;
  return who ? json(words_of(*who)) : json();
}

json as_json(const session_status& status, const session_controls& controls) {
  json j = telemetry::as_json(status);
  mark_sacrificial(j.at("workers"), "id", controls);
  add_rates(j.at("workers"), controls.worker_rates());
  j["tuning"] = controls.tuning();
  const bool stops = status.state == session_state::stopping && controls.killed_in;
  const auto or_null = [](std::optional<nanoseconds> time) { return time ? json(tenths_of_seconds(*time)) : json(); };
  const bool some_work = std::ranges::any_of(status.workers, [](const worker_status& w) { return w.pid.has_value(); });
  j["stopping_seconds"] = stops ? or_null(controls.stopping_for()) : json();
  j["killed_in_seconds"] = stops ? or_null(controls.killed_in(some_work)) : json();
  j["paused_by"] = paused_by(status, controls);
  if (has_left_out(status)) j["quarantined_before"] = quarantined_before(controls.quarantine());
  j["files"] = controls.files;
  j["id"] = controls.id;
  return j;
}

/// What the consumer is waiting for, while the wait is too short to count as a stall (rule W15). Null: it is
/// not waiting, or has only just begun.
json awaited_now(const session_controls& controls, const session_status& status) {
  constexpr auto worth_telling = std::chrono::seconds(1);
  const auto since = controls.progress && !status.stalled ? controls.waits_since() : std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (!since || now - *since < worth_telling) return nullptr;
  const supervision::progress_facts facts = controls.progress();
  if (!supervision::is_owed(facts)) return nullptr;
  const supervision::awaited who = supervision::find_blocker(facts);
  const double usual = std::chrono::duration<double>(who.usual).count();
  return {{"seconds", tenths_of_seconds(now - *since)},
          {"waits_for", who.text},
          {"worker", who.worker ? json(*who.worker) : json()},
          {"verdict_after_seconds", std::round(std::max(usual, supervision::hangs_from_seconds))}};
}

/// The live session's figures with the advice; `seconds` 0: nothing was measured.
json why(const session_controls& controls) {
  const limits_told told = controls.limits();
  const session_status status = controls.status();
  json j = telemetry::why_as_json(told.reading, told.advice, told.context);
  j["session"] = status.session;
  j["state"] = name_of(status.state);
  j["paused_by"] = paused_by(status, controls);
  j["of"] = words_for(controls.work).name;
  j["now"] = awaited_now(controls, status);
  j["stalled"] = telemetry::as_json(status).at("stalled");
  j["workers"]["ids"] = ids_of(status.workers);
  return j;
}

json deaths_of(const session_controls& controls) {
  json workers = json::array();
  for (const death_report& d : controls.deaths()) workers.push_back(telemetry::as_json(d));
  mark_sacrificial(workers, "worker", controls);
  json owners = json::array();
  for (const owner_death_report& d : controls.owner_deaths()) owners.push_back(telemetry::as_json(d));
  const session_status status = controls.status();
  return control::good_answer({{"schema", "penstock.deaths/1"},
                               {"deaths", std::move(workers)},
                               {"owner_deaths", std::move(owners)},
                               {"cost", telemetry::as_json(status.deaths_cost, status.quarantined, status.failed)},
                               {"of", words_for(controls.work).name}});
}

json pipeline(const session_controls& controls) {
  json j = pipeline_as_json(controls.progress(), controls.waited_seconds(), std::chrono::steady_clock::now());
  mark_sacrificial(j.at("status").at("workers"), "id", controls);
  add_rates(j.at("status").at("workers"), controls.worker_rates());
  const limits_told told = controls.limits();
  j["slowest_samples"] = telemetry::slowest_as_json(told.reading, told.context);
  j["waited"] = telemetry::waited_as_json(told.reading);
  return control::good_answer(std::move(j));
}

/// {"after": N, "follow": bool}: the events after number N. With follow, the answer waits for an event or the
/// end of the session.
control::answer events_after(const json& request, bool last_call, const session_controls& controls) {
  const json number = request.value("after", json(0U));
  if (!number.is_number_unsigned())
    return control::refusal(exit_codes::refused, "usage", "'after' must be the number of an event, or 0");
  const telemetry::event_reading found = controls.events(number.get<std::uint64_t>(), events_in_an_answer);
  if (found.events.empty() && request.value("follow", json()) == true && !last_call) return std::nullopt;
  json all = json::array();
  for (const event& e : found.events) all.push_back(telemetry::as_json(e));
  return control::good_answer({{"events", std::move(all)}, {"lost", found.lost}, {"last", found.last}});
}

/// {"after": N}: the batches released after number N. Without it: only the number of the newest.
json trace(const json& request, const session_controls& controls) {
  if (controls.work == work_kind::batches)
    return control::refusal(exit_codes::refused, "usage", "this is a DataLoader: its batches have no stages to trace; use `penstock why`");
  if (controls.work == work_kind::jobs)
    return control::refusal(exit_codes::refused, "usage", "this is a pool of jobs: it has no batches to trace");
  const json number = request.value("after", json());
  if (number.is_null())
    return control::good_answer(passages_as_json(*controls.times, 0, 0, std::chrono::steady_clock::now()));
  if (!number.is_number_unsigned())
    return control::refusal(exit_codes::refused, "usage", "'after' must be a number");
  return control::good_answer(passages_as_json(*controls.times, number.get<std::uint64_t>(),
                                               passages_in_an_answer, std::chrono::steady_clock::now()));
}

json quarantine(const json& request, const session_controls& controls) {
  const json what = request.value("act", json("list"));
  const std::string act = what.is_string() ? what.get<std::string>() : std::string();
  if (act == "list") {
    json all = json::array();
    for (const quarantine_report& q : controls.quarantine()) {
      if (!q.lifted) all.push_back(telemetry::quarantine_as_json(q, controls.work));
    }
    return control::good_answer({{"quarantine", std::move(all)}, {"of", words_for(controls.work).name}});
  }
  const json sample = request.value("sample", json());
  if ((act != "retry" && act != "release") || !sample.is_number_unsigned())
    return control::refusal(exit_codes::refused, "usage",
                            "quarantine: 'act' must be list, or retry or release with a sample");
  if (controls.work == work_kind::batches)
    return control::refusal(exit_codes::refused, "usage", "a DataLoader's quarantine belongs to its program: `penstock quarantine release SAMPLE --file FILE` changes "
                            "the file of DataLoader(quarantine=FILE)");
  if (controls.work == work_kind::jobs)
    return control::refusal(exit_codes::refused, "usage", "a poisoned job cannot be retried: submit it again");
  if (!controls.lift_quarantine(sample.get<std::uint64_t>(), act == "release")) {
    return control::refusal(exit_codes::no_target, "no_target",
                            fmt::format("sample {} is not quarantined", sample.get<std::uint64_t>()));
  }
  return control::good_answer({{act, sample}});
}

/// The loader host that a request names, or the reason why there is none.
struct host_choice {
  std::string name;
  json refused;
};

host_choice host_of(const json& request, const session_status& s) {
  const json name = request.at("host");
  if (!name.is_string()) return {"", control::refusal(exit_codes::refused, "usage", "'host' must be a name")};
  std::string meant = name.get<std::string>();
  if (std::ranges::find(s.hosts, meant, &host_status::name) != s.hosts.end()) return {std::move(meant), {}};
  std::string known;
  for (const host_status& one : s.hosts) known += (known.empty() ? "" : ", ") + ("host/" + one.name);
  return {"", control::refusal(exit_codes::no_target, "no_target",
                               fmt::format("there is no host/{}; {}", printable(meant),
                                           known.empty() ? "no loader host has joined" : "available: " + known))};
}

json scale_host(const json& request, const session_controls& controls) {
  host_choice meant = host_of(request, controls.status());
  if (meant.name.empty()) return std::move(meant.refused);
  const json number = request.value("workers", json());
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  if (!controls.scale_host || !number.is_number_unsigned() || number.get<std::uint64_t>() > most)
    return control::refusal(exit_codes::refused, "usage", "'workers' must be a number");
  if (const auto ok = controls.scale_host(meant.name, number.get<std::uint32_t>()); !ok)
    return control::refusal(exit_codes::refused, "range", ok.error().message);
  return control::good_answer({{"workers", number}, {"host", meant.name}});
}

json scale(const json& request, const session_controls& controls) {
  if (request.contains("host")) return scale_host(request, controls);
  const json number = request.value("workers", json());
  if (number == "auto") {
    controls.scale(std::nullopt);
    return control::good_answer({{"workers", number}});
  }
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() < 1 ||
      number.get<std::uint64_t>() > controls.workers_max) {
    return control::refusal(
        exit_codes::refused, "range",
        fmt::format("the number of workers must be 1 to {} ([loader.limits] max), or \"auto\"", controls.workers_max));
  }
  controls.scale(number.get<std::uint32_t>());
  return control::good_answer({{"workers", number}});
}

json drain_host(const json& request, const session_controls& controls) {
  host_choice meant = host_of(request, controls.status());
  if (meant.name.empty()) return std::move(meant.refused);
  if (!controls.drain_host || !controls.drain_host(meant.name))
    return control::refusal(exit_codes::no_target, "no_target", fmt::format("host/{} is gone", meant.name));
  return control::good_answer({{"drain", "host/" + meant.name}});
}

control::answer answer_request(const json& request, bool last_call, const session_controls& controls) {
  const json verb_value = request.value("verb", json());
  const std::string verb = verb_value.is_string() ? verb_value.get<std::string>() : std::string();
  if (verb == "status") return control::good_answer(as_json(controls.status(), controls));
  if (verb == "wait") {
    const json what = request.value("for", json());
    return wait_for(what.is_string() ? what.get<std::string>() : std::string(), last_call, controls.status(),
                    controls.ends());
  }
  if (verb == "deaths") return deaths_of(controls);
  if (verb == "why") return control::good_answer(why(controls));
  if (verb == "metrics" && controls.metrics) return control::good_answer({{"text", controls.metrics()}});
  if (verb == "pipeline") return pipeline(controls);
  if (verb == "trace") return trace(request, controls);
  if (verb == "quarantine") return quarantine(request, controls);
  if (verb == "logs") return answer_logs(request, last_call, *controls.logs);
  if (verb == "events") return events_after(request, last_call, controls);
  if (verb == "stop") {
    const json from = request.value("from", json());
    controls.stop(request.value("now", json()) == true, from.is_string() ? from.get<std::string>() : std::string());
    return control::good_answer({{"stopping", true}, {"ends", controls.ends()}, {"files", controls.files}});
  }
  if (verb == "pause" || verb == "resume") {
    const json by = request.value("by", json());
    const auto who = by.is_string() ? pauser_of(by.get_ref<const std::string&>()) : std::nullopt;
    const bool changed = controls.pause(verb == "pause", who.value_or(pauser::operator_));
    return control::good_answer({{"paused", verb == "pause"}, {"changed", changed}, {"drained", workers_drained(controls.status())}, {"of", words_for(controls.work).name}});
  }
  if (verb == "scale") return scale(request, controls);
  if (verb == "restart" && request.value("gpu", json()) == true) {
    if (!controls.restart_owner) {
      return control::refusal(exit_codes::refused, "usage",
                              "the GPU owner runs in the session's own process ([gpu] placement = "
                              "\"embedded\"): it cannot be restarted separately");
    }
    controls.restart_owner();
    return control::good_answer({{"restart", "gpu"}});
  }
  if (verb == "drain" && request.contains("host")) return drain_host(request, controls);
  if (verb == "restart" || verb == "drain") {
    target t = worker_of(request, controls.status());
    if (!t.worker) return std::move(t.refused);
    if (verb == "restart") {
      controls.restart(*t.worker, request.value("now", json()) == true);
    } else {
      controls.drain(*t.worker);
    }
    return control::good_answer({{verb, *t.worker}});
  }
  return control::refusal(exit_codes::refused, "usage", fmt::format("unknown verb '{}'", verb));
}

}  // namespace

control::request_handler make_request_handler(session_controls controls) {
  return [controls = std::move(controls)](const json& request, bool last_call) {
    try {
      return answer_request(request, last_call, controls);
    } catch (const error& refused) {
      return control::answer(
          control::refusal(exit_codes::refused, penstock::name_of(refused.code()), refused.what()));
    }
  };
}

}  // namespace penstock::host
