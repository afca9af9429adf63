#include "actors/supervisor/worker_views.hpp"

#include "runtime/base/text.hpp"
#include "runtime/process/process_facts.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::supervisor {

worker_status status_of(const supervision::place_view& place, const worker_facts* living,
                        const arena::flight_reading& flight, const death_report* died, steady_time now) {
  worker_status w;
  w.id = place.worker;
  w.incarnation = place.incarnation;
  w.restarts = place.restarts;
  w.state = std::string(supervision::name_of(place.state));
  w.why_stopped = std::string(supervision::name_of(place.why_stopped));
  if (place.next_restart != never && place.state == supervision::child_state::backoff)
    w.next_restart_seconds = std::max(0.0, std::chrono::duration<double>(place.next_restart - now).count());
  if (living != nullptr) {
    if (living->pid > 0) w.pid = living->pid;
    w.samples = flight.samples_done;
    w.rss_bytes = flight.rss_bytes > 0 ? flight.rss_bytes : living->rss_bytes;
    w.gpu_use = living->gpu_use;
    if (!flight.sample_name.empty()) w.current_sample = printable(flight.sample_name);
  }
  if (died != nullptr) w.last_death = *died;
  return w;
}

supervision::worker_sign sign_of(const worker_facts& w, const arena::flight_reading& flight,
                                 bool has_leases) {
  const auto facts = process::look_at(w.pid);
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
                   : fmt::format("it has been working on '{}'", printable(flight.sample_name));
  sign.wait_channel = process::wait_channel(w.pid, flight.thread);
  return sign;
}

std::optional<std::string> gpu_use_of(const process::gpu_use_watch& users, pid_t worker) {
  const auto user = users.found_in(worker);
  if (!user) return std::nullopt;
  return fmt::format("{} (pid {}): {}; only the GPU owner uses the GPU",
                     user->pid == worker ? "it uses the GPU" : "a process that it started uses the GPU",
                     user->pid, user->what);
}

}  // namespace penstock::supervisor
