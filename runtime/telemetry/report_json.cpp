#include "runtime/telemetry/report_json.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/memory_words.hpp"
#include "runtime/base/same_work.hpp"
#include "runtime/base/sample_name.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

namespace penstock::telemetry {
namespace {

using json = nlohmann::ordered_json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

/// Microseconds are enough, and "0.05" reads better than 0.049999999999999996.
double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

json text_or_null(const std::string& text) {
  return text.empty() ? json(nullptr) : json(text);
}

json seconds_or_null(const std::optional<double>& seconds) {
  return seconds ? json(rounded(*seconds)) : json(nullptr);
}

json number_of(std::uint64_t sample) {
  return sample == not_numbered ? json(nullptr) : json(sample);
}

double rate(double amount, double seconds) {
  return seconds > 0 ? std::round(amount / seconds * 10) / 10 : 0;
}

json as_json(const device_report& device) {
  return {{"kind", device.kind}, {"name", device.name}, {"uuid", or_null(device.uuid)}};
}

json as_json(const epoch_report& e) {
  return {{"epoch", e.epoch},
          {"complete", e.complete},
          {"from_batch", e.from_batch},
          {"from_position", e.from_position},
          {"expected", e.expected},
          {"padded", e.padded},
          {"delivered", e.delivered},
          {"failed", e.failed},
          {"quarantined", e.quarantined},
          {"replaced", e.replaced},
          {"batches", e.batches},
          {"early_batches", e.early_batches},
          {"most_early", e.most_early},
          {"digest", or_null(e.digest)},
          {"seconds", rounded(e.seconds)}};
}

json as_json(const memory_excess& over, work_kind kind) {
  const std::string work(work_for_people(over.work, kind));
  return {{"bytes", over.bytes}, {"limit_bytes", over.limit_bytes}, {"sample", or_null(kind == work_kind::batches ? sample_in_work(work) : over.sample)},
          {"work", text_or_null(work)}, {"text", excess_in_words(over, kind)}};
}

json as_json(const worker_status& w, work_kind kind) {
  json j{{"id", w.id},
         {"pid", or_null(w.pid)},
         {"state", name_of(w.state)},
         {"incarnation", w.incarnation},
         {"restarts", w.restarts},
         {"samples", w.samples},
         {"rss_bytes", w.rss_bytes},
         {"current_sample", w.current_sample ? json(work_for_people(*w.current_sample, kind)) : json()},
         {"current_index", or_null(w.current_index)},
         {"current_attempt", or_null(w.current_attempt)},
         {"current_epoch", or_null(w.current_epoch)},
         {"current_seq", or_null(w.current_sequence)},
         {"current_sample_seconds", seconds_or_null(w.current_sample_seconds)},
         {"current_work_seconds", seconds_or_null(w.current_work_seconds)},
         {"current_limit_seconds", seconds_or_null(w.current_limit_seconds)}};
  j["over_memory"] = w.over_memory ? as_json(*w.over_memory, kind) : json(nullptr);
  j["gpu_use"] = or_null(w.gpu_use);
  j["why_stopped"] = text_or_null(name_of(w.why_stopped));
  j["last_death"] = w.last_death ? telemetry::as_json(*w.last_death) : json(nullptr);
  j["next_restart_seconds"] = seconds_or_null(w.next_restart_seconds);
  return j;
}

}  // namespace

std::string as_utc(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(whole);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, micros);
}

json as_json(const quarantine_report& q) {
  return {{"sample", number_of(q.sample)}, {"path", or_null(q.path)}, {"attempts", q.attempts},
          {"causes", q.causes}, {"known", q.known},        {"lifted", q.lifted}};
}

json poisoned_job_as_json(const quarantine_report& q) {
  json j{{"job", q.sample}, {"work", or_null(q.path)}};
  j.update(as_json(q));  // includes the keys of jobs in earlier versions
  return j;
}

json quarantine_as_json(const quarantine_report& q, work_kind kind) {
  if (kind == work_kind::samples) return as_json(q);
  if (kind == work_kind::jobs) return poisoned_job_as_json(q);
  // Earlier versions of the report listed these batches as jobs.
  json j{{"job", nullptr}, {"work", q.path.value_or(default_sample_name(q.sample))}};
  j.update(as_json(q));
  return j;
}

json as_json(const death_report& d) {
  json j{{"worker", d.worker},
         {"pid", d.pid},
         {"incarnation", d.incarnation},
         {"cause", penstock::name_of(d.cause)},
         {"signal", or_null(d.signal)},
         {"code", or_null(d.code)},
         {"sample", or_null(d.sample)},
         {"path", or_null(d.path)},
         {"epoch", or_null(d.epoch)},
         {"seq", or_null(d.sequence)},
         {"attempt", d.attempt},
         {"on_request", ended_on_request(d)},
         {"ignored_stop_seconds", seconds_or_null(d.ignored_stop_seconds)},
         {"worked_seconds", seconds_or_null(d.worked_seconds)},
         {"hung_before", d.hung_before},
         {"held", d.held},
         {"held_again", d.held_again},
         {"phase", penstock::name_of(d.phase)},
         {"time", as_utc(d.time)},
         {"lived_seconds", rounded(d.lived_seconds)},
         {"rss_bytes", d.rss_bytes},
         {"wait_channel", text_or_null(d.wait_channel)},
         {"stack", d.stack},
         {"last_output", d.last_output},
         {"reason", text_or_null(d.reason)}};
  if (d.job) j["job"] = *d.job;
  if (d.job || d.work) j["work"] = or_null(d.work);
  return j;
}

json as_json(const owner_death_report& d) {
  return {{"pid", d.pid},
          {"incarnation", d.incarnation},
          {"cause", penstock::name_of(d.cause)},
          {"signal", or_null(d.signal)},
          {"code", or_null(d.code)},
          {"epoch", or_null(d.epoch)},
          {"seq", or_null(d.sequence)},
          {"on_request", ended_on_request(d)},
          {"ignored_stop_seconds", seconds_or_null(d.ignored_stop_seconds)},
          {"last_words", d.last_words},
          {"time", as_utc(d.time)},
          {"lived_seconds", rounded(d.lived_seconds)},
          {"recovered_seconds", seconds_or_null(d.recovered_seconds)},
          {"reason", text_or_null(d.reason)}};
}

json as_json(const death_costs& cost, std::uint64_t quarantined, std::uint64_t failed) {
  return {{"quarantined", quarantined},
          {"lost", cost.lost},
          {"repeated", cost.repeated},
          {"repetitions", cost.repetitions},
          {"waited_seconds", seconds_or_null(cost.waited_seconds)},
          {"failed", failed}};
}

/// `is_tried`: a worker is working on it now, so an operator can restart that worker.
json as_json(const hung_work& hung, work_kind kind, bool is_tried) {
  json hangs = json::array();
  for (const hung_work::hang& h : hung.hangs) hangs.push_back({{"worker", h.worker}, {"seconds", rounded(h.seconds)}, {"time", as_utc(h.time)}, {"timed_out", h.timed_out}});
  return {{"name", hung.name}, {"job", or_null(hung.job)}, {"hangs", std::move(hangs)}, {"text", is_tried ? hangs_and_way_out(hung, kind) : hangs_in_words(hung)}};
}

bool is_tried(const hung_work& hung, const session_status& s) {
  return s.outcome == run_outcome::running && s.state != session_state::stopping && std::ranges::any_of(s.workers, [&](const worker_status& w) { return works_on(w, hung, kind_of_work(s.jobs)); });
}

json as_json(const pool_statistics& p) {
  json functions = json::array();
  for (const function_statistics& f : p.functions) {
    functions.push_back({{"name", f.name},
                         {"waiting", f.waiting},
                         {"running", f.running},
                         {"ok", f.ok},
                         {"failed", f.failed},
                         {"retried", f.retried},
                         {"cancelled", f.cancelled}});
  }
  return {{"submitted", p.submitted},
          {"waiting", p.waiting},
          {"running", p.running},
          {"ok", p.ok},
          {"failed", p.failed},
          {"retried", p.retried},
          {"cancelled", p.cancelled},
          {"nonzero_exits", p.nonzero_exits},
          {"handed", p.handed},
          {"of_batches", p.of_batches},
          {"argument_bytes", p.argument_bytes},
          {"result_bytes", p.result_bytes},
          {"memory_bytes", p.memory_bytes},
          {"callers_wait", p.callers_wait},
          {"callers_hold_everything", p.callers_hold_everything},
          {"functions", std::move(functions)}};
}

json as_json(const group_status& g) {
  json j{{"name", g.group},
         {"rank", g.rank},
         {"world_size", g.world_size},
         {"generation", g.generation},
         {"phase", g.phase},
         {"waits_for", g.waits_for.empty() ? json(nullptr) : json(g.waits_for)},
         {"missing", g.missing},
         {"steps", g.steps},
         {"stop_at", or_null(g.stop_at)},
         {"outcome", g.outcome == run_outcome::running ? json(nullptr) : json(penstock::name_of(g.outcome))},
         {"first_cause", nullptr},
         {"lost", json::array()}};
  for (const lost_process_report& one : g.lost)
    j["lost"].push_back({{"rank", one.rank}, {"pid", one.pid < 0 ? json() : json(one.pid)}, {"end", one.end}, {"time", as_utc(one.time)}});
  if (g.first_cause) {
    j["first_cause"] = {{"rank", g.first_cause->rank},
                        {"host", g.first_cause->host},
                        {"pid", g.first_cause->pid},
                        {"cause", g.first_cause->cause}};
  }
  return j;
}

json as_json(const hedge_counts& h) {
  return {{"started", h.started}, {"won", h.won}};
}

/// `record`: the history of all hosts with this name.
json as_json(const host_status& h, const host_record& record) {
  std::uint64_t losses = 0;
  for (const auto& [cause, count] : record.losses) losses += count;
  return {{"name", h.name},
          {"address", h.address},
          {"pid", h.pid},
          {"state", h.state},
          {"workers", h.workers},
          {"samples_per_second", std::round(h.samples_per_second * 10) / 10},
          {"bytes_per_second", std::round(h.bytes_per_second)},
          {"round_trip_seconds", rounded(h.round_trip_seconds)},
          {"version", h.version},
          {"cores", h.cores},
          {"workers_offered", h.workers_offered},
          {"workers_wanted", h.workers_wanted},
          {"joined", h.joined ? json(as_utc(*h.joined)) : json(nullptr)},
          {"samples", record.samples},
          {"bytes", record.bytes},
          {"holds", h.holds},
          {"deaths", h.deaths},
          {"losses", losses},
          {"refused", {{"damaged", record.refused.damaged}, {"wrong_size", record.refused.wrong_size}, {"late", record.refused.late}}},
          {"cpu_cores", h.cpu_cores ? json(std::round(*h.cpu_cores * 100) / 100) : json(nullptr)}};
}

bool has_hosts(const session_status& status) noexcept {
  return !status.hosts_join_at.empty() || !status.hosts_called.empty() || !status.hosts.empty();
}

/// Adds the loader hosts that have joined, are being called or are lost, and how long the session has waited for one.
void add_hosts(json& j, const session_status& s) {
  if (!s.hosts_join_at.empty()) j["hosts_join_at"] = s.hosts_join_at;
  if (!s.hosts_called.empty()) j["hosts_called"] = s.hosts_called;
  if (!s.jobs || has_hosts(s)) {
    j["hosts"] = json::array();
    for (const host_status& h : s.hosts) {
      const auto record = std::ranges::find(s.host_records, h.name, &host_record::name);
      j["hosts"].push_back(as_json(h, record == s.host_records.end() ? host_record{} : *record));
    }
  }
  if (!has_hosts(s)) return;
  j["hosts_lost"] = json::array();
  for (const host_record& h : s.host_records) {
    if (h.lost_seconds)
      j["hosts_lost"].push_back({{"name", h.name}, {"address", h.address}, {"why", h.lost_why}, {"seconds", rounded(*h.lost_seconds)}});
  }
  j["waits_for_hosts"] = nullptr;
  if (s.waits_for_hosts)
    j["waits_for_hosts"] = {{"seconds", rounded(s.waits_for_hosts->seconds)}, {"limit_seconds", s.waits_for_hosts->limit_seconds}};
}

json as_json(const raised_exception& e) {
  return {{"type", e.type}, {"message", e.message}, {"frames", e.frames}};
}

json as_json(const failure_report& f) {
  json j{{"sample", number_of(f.sample)}, {"path", or_null(f.path)}, {"error", f.error}};
  if (f.exception) j["exception"] = as_json(*f.exception);
  return j;
}

json as_json(const run_report& r) {
  json j;
  j["schema"] = "penstock.run/1";
  j["session"] = r.session;
  if (r.world_size > 1) {
    j["rank"] = r.rank;
    j["world_size"] = r.world_size;
  }
  j["outcome"] = name_of(r.outcome);
  if (r.error) {
    j["error"] = r.error->message;
    j["error_kind"] = penstock::name_of(r.error->code);
  }
  j["device"] = as_json(r.device);
  j["epochs"] = json::array();
  for (const epoch_report& e : r.epochs) j["epochs"].push_back(as_json(e));
  j["totals"] = {{"samples", r.samples},
                 {"batches", r.batches},
                 {"bytes", r.bytes},
                 {"seconds", rounded(r.seconds)},
                 {"samples_per_second", rate(static_cast<double>(r.samples), r.seconds)},
                 {"bytes_per_second", rate(static_cast<double>(r.bytes), r.seconds)},
                 {"first_batch_seconds", rounded(r.first_batch_seconds)},
                 {"device_waited_seconds", rounded(r.device_waited_seconds)}};
  json deaths = json::array();
  for (const death_report& d : r.deaths) deaths.push_back(as_json(d));
  j["workers"] = {{"configured", r.workers_configured},
                  {"started", r.workers_started},
                  {"restarts", r.restarts},
                  {"ended_unexpectedly", r.workers_ended_unexpectedly},
                  {"stale_dropped", r.stale_dropped},
                  {"deaths", std::move(deaths)}};
  j["quarantine"] = json::array();
  for (const quarantine_report& q : r.quarantine) j["quarantine"].push_back(quarantine_as_json(q, kind_of_work(r.jobs)));
  j["failures"] = json::array();
  for (const failure_report& f : r.failures) j["failures"].push_back(as_json(f));
  json owners = json::array();
  for (const owner_death_report& d : r.owner_deaths) owners.push_back(as_json(d));
  j["gpu"] = {{"placement", r.placement},
              {"restarts", r.owner_restarts},
              {"ended_unexpectedly", r.owners_ended_unexpectedly},
              {"deaths", std::move(owners)}};
  if (r.jobs) j["jobs"] = as_json(*r.jobs);
  if (r.group) j["group"] = as_json(*r.group);
  j["uploads"] = {{"count", r.uploads}, {"bytes", r.bytes}, {"pinned", r.pinned}};
  j["hedges"] = as_json(r.hedges);
  return j;
}

json as_json(const limits_status& limits) {
  const auto share = [](double value) { return std::round(value * 1e4) / 1e4; };
  json j{{"storage", share(limits.storage)}, {"decode", share(limits.decode)},     {"order", share(limits.order)},
         {"wire", share(limits.wire)},       {"convert", share(limits.convert)},   {"consumer", share(limits.consumer)},
         {"start", share(limits.start)},     {"verdict", limits.verdict}};
  if (!limits.hosts.empty()) j["hosts"] = limits.hosts;
  return j;
}

json as_json(const session_status& s) {
  json j{{"schema", "penstock.status/1"},
         {"session", s.session},
         {"pid", s.pid},
         {"state", name_of(s.state)},
         {"outcome", name_of(s.outcome)},
         {"epoch", s.epoch},
         {"batches_delivered", s.batches_delivered},
         {"samples_delivered", s.samples_delivered},
         {"samples_expected", s.samples_expected},
         {"samples_done", s.samples_done},
         {"samples_before", s.samples_before},
         {"dataset_samples", or_null(s.dataset_samples)},
         {"bytes_uploaded", s.bytes_uploaded},
         {"slots_per_worker", s.slots_per_worker},
         {"started", s.started ? json(as_utc(*s.started)) : json(nullptr)},
         {"uptime_seconds", rounded(s.uptime_seconds)},
         {"progress", nullptr},
         {"rate", s.rate ? json(std::round(*s.rate * 10) / 10) : json(nullptr)},
         {"eta_seconds", s.eta_seconds ? json(std::ceil(*s.eta_seconds)) : json(nullptr)},
         {"config_file", s.config_file.empty() ? json(nullptr) : json(s.config_file)},
         {"failure", s.failure.empty() ? json(nullptr) : json(s.failure)},
         {"ended", nullptr}};
  const auto progress = [&j](std::uint64_t before, std::uint64_t done, std::uint64_t expected) {
    if (expected == 0) return;
    const double share = static_cast<double>(before + done) / static_cast<double>(before + expected);
    j["progress"] = std::floor(std::min(share, 1.0) * 1e4) / 1e4;
  };
  progress(s.samples_before, s.samples_done, s.samples_expected);
  progress(0, s.batches_done, s.batches_expected);
  if (s.jobs && s.jobs->of_batches) {
    j["batches_done"] = s.batches_done;
    j["batches_expected"] = s.batches_expected;
  }
  j["gpu"] = {{"kind", s.gpu.kind},        {"name", s.gpu.name},        {"uuid", or_null(s.gpu.uuid)},
              {"state", name_of(s.gpu_state)}, {"pid", or_null(s.gpu_pid)}, {"placement", s.gpu_placement},
              {"restarts", s.gpu_restarts}};
  j["gpu"]["ended_unexpectedly"] = s.owners_ended_unexpectedly;
  j["gpu"]["last_death"] = s.last_owner_death ? telemetry::as_json(*s.last_owner_death) : json(nullptr);
  j["gpu"]["processes"] = nullptr;
  if (s.gpu_processes) {
    j["gpu"]["processes"] = json::array();
    for (const gpu_process& p : *s.gpu_processes)
      j["gpu"]["processes"].push_back({{"pid", p.pid}, {"bytes", p.bytes}});
  }
  j["workers"] = json::array();
  for (const worker_status& w : s.workers) j["workers"].push_back(as_json(w, kind_of_work(s.jobs)));
  j["worker_restarts"] = s.worker_restarts;
  j["workers_ended_unexpectedly"] = s.workers_ended_unexpectedly;
  j["quarantined"] = s.quarantined;
  j["failed"] = s.failed;
  j["last_failure"] = s.last_failure ? as_json(*s.last_failure) : json(nullptr);
  j["hedges"] = as_json(s.hedges);
  add_hosts(j, s);
  if (s.jobs) j["jobs"] = as_json(*s.jobs);
  if (s.group) j["group"] = as_json(*s.group);
  j["stalled"] = nullptr;
  if (s.stalled) {
    j["stalled"] = {{"kind", name_of(s.stalled->kind)},
                    {"text", s.stalled->text},
                    {"seconds", rounded(s.stalled->seconds)},
                    {"worker", or_null(s.stalled->worker)},
                    {"sample", text_or_null(s.stalled->sample)},
                    {"hung_before", s.stalled->hung_before}};
  }
  j["hung"] = json::array();
  for (const hung_work& h : s.hung) j["hung"].push_back(as_json(h, kind_of_work(s.jobs), is_tried(h, s)));
  j["deaths_cost"] = as_json(s.deaths_cost, s.quarantined, s.failed);
  j["limits"] = as_json(s.limits);
  j["verdict"] = s.limits.verdict;
  return j;
}

json as_json(const event& e) {
  json j{{"schema", "penstock.event/1"}, {"number", e.number},
         {"time", as_utc(e.time)},       {"kind", penstock::name_of(e.kind)},
         {"worker", or_null(e.worker)},  {"incarnation", or_null(e.incarnation)},
         {"pid", or_null(e.pid)},        {"sample", or_null(e.sample)},
         {"path", or_null(e.path)},      {"epoch", or_null(e.epoch)},
         {"seq", or_null(e.sequence)}};
  j["death"] = e.death ? as_json(*e.death) : e.owner_death ? as_json(*e.owner_death) : json(nullptr);
  if (e.host) j["host"] = *e.host;
  if (e.exception) j["exception"] = as_json(*e.exception);
  if (e.kind == event_kind::batch_lost) {
    j["samples"] = e.samples;
    j["samples_unlisted"] = e.samples_unlisted;
  }
  j["text"] = e.text;
  return j;
}

json as_json(const failure& why) {
  return {{"error", {{"kind", penstock::name_of(why.code)}, {"message", why.message}}}};
}

}  // namespace penstock::telemetry
