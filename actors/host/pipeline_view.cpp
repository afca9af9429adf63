#include "actors/host/pipeline_view.hpp"

#include "runtime/base/job_name.hpp"
#include "runtime/base/text.hpp"
#include "runtime/telemetry/metrics_text.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

namespace penstock::host {
namespace {

using json = nlohmann::ordered_json;

std::int64_t as_ns(steady_time when) {
  return nanoseconds(when.time_since_epoch()).count();
}

/// Counts every job that no worker has begun as waiting, including one that waits again after a death. The totals then equal the
/// sums over all functions. `begun`: how many jobs of each function workers are running. A job that describes its work counts
/// under that description instead.
void count_waiting(pool_statistics& jobs, const std::map<std::string, std::uint64_t, std::less<>>& begun) {
  const std::uint64_t others = jobs.running + jobs.ok + jobs.failed + jobs.cancelled;
  jobs.waiting = std::max(jobs.handed, jobs.submitted - std::min(jobs.submitted, others));
  std::uint64_t left = 0;
  for (const function_statistics& f : jobs.functions) left += f.running;
  left -= std::min(left, jobs.running);
  for (const bool unnamed_too : {false, true}) {
    for (function_statistics& f : jobs.functions) {
      const auto named = begun.find(f.name);
      const std::uint64_t kept = unnamed_too || named == begun.end() ? 0 : std::min(named->second, f.running);
      const std::uint64_t moved = std::min(left, f.running - kept);
      f.running -= moved;
      f.waiting += moved;
      left -= moved;
    }
  }
}

}  // namespace

session_status look_closer(session_status status, const arena::flight_recorders& flights, steady_time now, const std::vector<batch_passage>& under_way) {
  std::map<std::string, std::uint64_t, std::less<>> begun;  // by name
  for (worker_status& w : status.workers) {
    if (!w.pid) continue;
    const arena::flight_reading flight = flights.read(w.id);
    w.samples = flight.samples_done;
    w.current_sample.reset();
    w.current_sample_seconds.reset();
    w.current_work_seconds.reset();
    w.current_limit_seconds.reset();
    w.current_index.reset();
    w.current_attempt.reset();
    w.current_epoch.reset();
    w.current_sequence.reset();
    if (flight.sample_name.empty()) continue;
    w.current_sample = printable(flight.sample_name);
    if (flight.sample) {
      w.current_index = flight.sample->index;
      w.current_attempt = flight.sample->attempt;
    }
    const auto batch = std::ranges::find_if(under_way, [&](const batch_passage& b) {
      return b.worker == w.id && b.incarnation == w.incarnation && b.slot == flight.state.slot && b.time_of(batch_stage::loaded) == 0;
    });
    if (batch != under_way.end()) {
      w.current_epoch = batch->epoch;
      w.current_sequence = batch->sequence;
    }
    const auto age = [now](steady_time since) { return std::chrono::duration<double>(std::max(now - since, nanoseconds(0))).count(); };
    w.current_sample_seconds = age(flight.since);
    if (flight.named_since) w.current_work_seconds = age(*flight.named_since);
    if (flight.limit.count() > 0) w.current_limit_seconds = std::chrono::duration<double>(flight.limit).count();
    if (status.jobs && status.jobs->handed > 0) {
      --status.jobs->handed;
      ++status.jobs->running;
      if (const auto now_running = job_named(flight.sample_name)) ++begun[std::string(now_running->work)];
    }
  }
  if (status.jobs) count_waiting(*status.jobs, begun);
  return status;
}

void add_rates(json& workers, const std::map<std::uint32_t, double>& rates) {
  for (json& one : workers) {
    const auto rate = rates.find(one.at("id").get<std::uint32_t>());
    one["rate"] = rate == rates.end() ? json() : json(std::round(rate->second * 10) / 10);
  }
}

bool has_left_out(const session_status& status) {
  return status.jobs && status.jobs->of_batches && status.samples_done > status.samples_delivered;
}

std::size_t quarantined_before(const std::vector<quarantine_report>& all) {
  return static_cast<std::size_t>(std::ranges::count_if(all, [](const quarantine_report& q) { return q.known && !q.lifted; }));
}

std::size_t workers_drained(const session_status& status) {
  const auto drained = std::ranges::count(status.workers, vacancy::drained, &worker_status::why_stopped);
  const bool some_run = std::ranges::any_of(status.workers, [](const worker_status& w) { return w.state != child_state::stopped && w.state != child_state::failed; });
  return some_run ? 0 : static_cast<std::size_t>(drained);
}

json pipeline_as_json(const supervision::progress_facts& facts, double waited_seconds, steady_time now) {
  const telemetry::pipeline_counts counts = telemetry::count_pipeline(facts.under_way);
  const supervision::awaited who = supervision::find_blocker(facts);
  const auto& died = facts.status.last_owner_death;
  return {{"status", telemetry::as_json(facts.status)},
          {"batches",
           {{"loading", counts.loading},
            {"loaded", counts.loaded},
            {"uploading", counts.uploading},
            {"ready", counts.ready},
            {"in_use", counts.in_use}}},
          {"waits_for", who.text},
          {"waits_for_worker", who.worker ? json(*who.worker) : json()},
          {"device_waited_seconds", waited_seconds},
          {"owner_last_death", died ? telemetry::as_json(*died) : json()},
          {"now_ns", as_ns(now)}};
}

json passages_as_json(const batch_times& times, std::uint64_t after, std::size_t limit, steady_time now) {
  json batches = json::array();
  std::uint64_t last = after;
  for (const batch_passage& b : times.released_after(after, limit)) {
    last = b.number;
    batches.push_back({{"number", b.number},
                       {"epoch", b.epoch},
                       {"seq", b.sequence},
                       {"worker", b.worker},
                       {"incarnation", b.incarnation},
                       {"slot", b.slot},
                       {"samples", b.samples},
                       {"at", b.at}});
  }
  return {
      {"batches", std::move(batches)}, {"last", last}, {"newest", times.released()}, {"now_ns", as_ns(now)}};
}

}  // namespace penstock::host
