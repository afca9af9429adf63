#include "actors/host/pipeline_view.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/telemetry/metrics_text.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::host {
namespace {

using json = nlohmann::ordered_json;

std::int64_t as_ns(steady_time when) {
  return nanoseconds(when.time_since_epoch()).count();
}

}  // namespace

session_status look_closer(session_status status, const arena::flight_recorders& flights, steady_time now) {
  for (worker_status& w : status.workers) {
    if (!w.pid) continue;
    const arena::flight_reading flight = flights.read(w.id);
    w.samples = flight.samples_done;
    w.current_sample.reset();
    w.current_sample_seconds.reset();
    if (flight.sample_name.empty()) continue;
    w.current_sample = printable(flight.sample_name);
    const nanoseconds age = std::max(now - flight.since, nanoseconds(0));
    w.current_sample_seconds = std::chrono::duration<double>(age).count();
    if (status.jobs && status.jobs->handed > 0) {
      --status.jobs->handed;
      ++status.jobs->running;
    }
  }
  if (status.jobs) status.jobs->waiting += status.jobs->handed;
  return status;
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
