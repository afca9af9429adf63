#include "actors/host/worker_look.hpp"

#include "runtime/process/process_facts.hpp"

#include <algorithm>

namespace penstock::host {
namespace {

worker_look look_at(const worker_status& w, const arena::flight_recorders& flights, steady_time now) {
  worker_look seen;
  seen.id = w.id;
  seen.incarnation = w.incarnation;
  seen.ready = w.state == child_state::ready || w.state == child_state::draining;
  seen.starts = w.state == child_state::starting || w.state == child_state::backoff;
  seen.samples = w.samples;
  if (!w.pid) return seen;
  const arena::flight_reading flight = flights.read(w.id);
  seen.busy = flight.state.at != arena::phase::idle && arena::preparation_in_words(flight.state.at).empty();
  seen.reads = flight.reads_since.has_value();
  if (flight.state.at == arena::phase::loading) seen.sample_for = std::max(now - flight.since, nanoseconds(0));
  return seen;
}

}  // namespace

std::vector<worker_look> look_at_workers(const session_status& status, const arena::flight_recorders& flights,
                                         std::uint32_t sacrificial_place) {
  const steady_time now = std::chrono::steady_clock::now();
  std::vector<worker_look> all;
  for (const worker_status& w : status.workers) {
    if (w.id >= sacrificial_place) continue;
    worker_look& seen = all.emplace_back(look_at(w, flights, now));
    if (!w.pid) continue;
    if (const auto times = process::times_of(*w.pid, flights.read(w.id).thread)) {
      seen.cpu = times->cpu;
      seen.core_wait = times->core_wait;
    }
  }
  return all;
}

std::vector<worker_look> look_at_remote_workers(const session_status& status, const arena::flight_recorders& flights,
                                                std::uint32_t sacrificial_place, const remote_times_of& times_of) {
  const steady_time now = std::chrono::steady_clock::now();
  std::vector<worker_look> all;
  for (const worker_status& w : status.workers) {
    if (w.id <= sacrificial_place) continue;
    worker_look& seen = all.emplace_back(look_at(w, flights, now));
    seen.remote = true;
    if (const auto times = times_of(w.id)) {
      seen.cpu = times->cpu;
      seen.core_wait = times->core_wait;
      seen.receiving = times->receiving;
      // The worker's flight page is out of date: a host sends no flight pages while it sends a batch.
      if (times->rests) {
        seen.busy = seen.reads = false;
        seen.sample_for = nanoseconds(0);
      }
    }
  }
  return all;
}

}  // namespace penstock::host
