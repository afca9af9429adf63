#include "actors/session/pipeline_view.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/telemetry/metrics_text.hpp"
#include "runtime/telemetry/report_json.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace penstock::session {
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
  }
  return status;
}

std::string waits_for(const session_status& status, const std::vector<batch_passage>& under_way,
                      steady_time now) {
  if (status.state == "paused") return "an operator: the session is paused";
  if (status.gpu_state != "ready") return "itself: it is " + status.gpu_state;
  const control::pipeline_counts counts = control::count_pipeline(under_way);
  if (counts.ready > 0) {
    return fmt::format("the consumer, which has {} batch{} to take", counts.ready,
                       counts.ready == 1 ? "" : "es");
  }
  if (counts.in_use > 0 && counts.uploading + counts.loaded > 0 && counts.loading == 0)
    return "the consumer, which is working on a batch";
  if (counts.uploading > 0) return "nobody: it is copying a batch";
  // The first batch in order decides, whatever is finished behind it.
  const auto first = std::ranges::find_if(under_way, [](const batch_passage& b) {
    return b.reached() == batch_stage::leased || b.reached() == batch_stage::begun;
  });
  if (first == under_way.end())
    return counts.in_use > 0 ? "the consumer, which is working on a batch" : "work: no batch is under way";
  const nanoseconds since(as_ns(now) - first->time_of(batch_stage::leased));
  return fmt::format("worker/{}: batch {} of epoch {}, for {}", first->worker, first->sequence,
                     first->epoch, duration_for_people(std::max(since, nanoseconds(0))));
}

json pipeline_as_json(const session_status& status, const batch_times& times, double waited_seconds,
                      steady_time now) {
  const std::vector<batch_passage> under_way = times.under_way();
  const control::pipeline_counts counts = control::count_pipeline(under_way);
  return {{"status", control::as_json(status)},
          {"batches",
           {{"loading", counts.loading},
            {"loaded", counts.loaded},
            {"uploading", counts.uploading},
            {"ready", counts.ready},
            {"in_use", counts.in_use}}},
          {"waits_for", waits_for(status, under_way, now)},
          {"device_waited_seconds", waited_seconds},
          {"owner_last_death", status.last_owner_death ? control::as_json(*status.last_owner_death) : json()},
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

}  // namespace penstock::session
