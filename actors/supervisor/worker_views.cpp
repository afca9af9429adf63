#include "actors/supervisor/worker_views.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/text.hpp"
#include "runtime/process/process_facts.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::supervisor {
namespace {

/// `living`: null if the worker has ended or never started. `died`: may be null.
worker_status status_of(const supervision::place_view& place, const worker_facts* living,
                        const arena::flight_reading& flight, const death_report* died, steady_time now) {
  worker_status w;
  w.id = place.worker;
  w.incarnation = place.incarnation;
  w.restarts = place.restarts;
  w.state = place.state;
  w.why_stopped = place.why_stopped;
  if (place.next_restart != never && place.state == child_state::backoff)
    w.next_restart_seconds = std::max(0.0, std::chrono::duration<double>(place.next_restart - now).count());
  w.samples = flight.samples_done;  // the last process's, until the next one starts
  if (living != nullptr) {
    if (living->pid > 0) w.pid = living->pid;
    w.rss_bytes = flight.rss_bytes > 0 ? flight.rss_bytes : living->rss_bytes;
    w.gpu_use = living->gpu_use;
    w.over_memory = living->over_memory;
    if (!flight.sample_name.empty()) w.current_sample = printable(flight.sample_name);
  }
  if (died != nullptr) w.last_death = *died;
  return w;
}

std::string hang_work_text(const std::string& work, work_kind kind) {
  return kind == work_kind::batches ? "it has been " + doing_in_words(work) : fmt::format("it has been working on '{}'", work);
}

supervision::worker_sign sign_of(const worker_facts& w, const arena::flight_reading& flight,
                                 bool has_leases, steady_time now, work_kind kind) {
  const auto facts = w.host ? std::nullopt : process::look_at(w.pid);
  supervision::worker_sign sign;
  sign.worker = w.who.worker;
  sign.heartbeats = flight.heartbeats;
  sign.work_mark = flight.word;
  // A worker that holds leases but starts none counts as hung too, although no sample is blamed.
  const bool idle = flight.state.at == arena::phase::idle;
  sign.busy = !idle || has_leases;
  sign.traced = facts && facts->traced;
  if (flight.limit.count() > 0) sign.limit = flight.limit;
  sign.work = idle ? std::string("it has not started its next batch")
                   : hang_work_text(printable(work_for_people(flight.sample_name, kind)), kind);
  if (!idle) sign.worked = now - flight.since;
  if (!w.host) sign.wait_channel = process::wait_channel(w.pid, flight.thread);
  return sign;
}

}  // namespace

void worker_records::begin(worker_ref who, steady_time now) {
  worker_facts fresh;
  fresh.who = who;
  fresh.started = now;
  living_[who.worker] = std::move(fresh);
}

worker_facts* worker_records::find(worker_ref who) {
  const auto it = living_.find(who.worker);
  return it != living_.end() && it->second.who == who ? &it->second : nullptr;
}

void worker_records::erase(worker_ref who) {
  if (find(who) != nullptr) living_.erase(who.worker);
}

std::vector<worker_status> worker_records::statuses(const supervision::pool& places,
                                                    const arena::flight_recorders& flights,
                                                    steady_time now) const {
  std::vector<worker_status> all;
  for (const supervision::place_view& place : places.places()) {
    const auto w = living_.find(place.worker);
    const auto died = deaths_.find(place.worker);
    all.push_back(status_of(place, w != living_.end() && !w->second.ended ? &w->second : nullptr,
                            flights.read(place.worker), died != deaths_.end() ? &died->second : nullptr,
                            now));
  }
  return all;
}

std::vector<supervision::worker_sign> worker_records::signs(const arena::flight_recorders& flights,
                                                            const scheduler::lease_counts& leases,
                                                            const std::string& starting, steady_time now, work_kind kind) const {
  std::vector<supervision::worker_sign> all;
  for (const auto& [place, w] : living_) {
    if (w.ended) continue;
    if (w.pid > 0) {
      all.push_back(sign_of(w, flights.read(place), leases.of(place) > 0, now, kind));
      continue;
    }
    supervision::worker_sign& sign = all.emplace_back();
    sign.worker = place;
    sign.work = starting;
  }
  return all;
}

std::optional<std::string> gpu_use_of(const process::gpu_use_watch& users, pid_t worker) {
  const auto user = users.found_in(worker);
  if (!user) return std::nullopt;
  return fmt::format("{} (pid {}): {}; only the GPU owner uses the GPU",
                     user->pid == worker ? "it uses the GPU" : "a process that it started uses the GPU",
                     user->pid, user->what);
}

}  // namespace penstock::supervisor
