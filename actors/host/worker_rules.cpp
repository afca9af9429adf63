#include "actors/host/worker_rules.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/process/process_facts.hpp"

#include <algorithm>

namespace penstock::host {

double cpu_of(const config& settings) {
  const auto listed = static_cast<double>(settings.loader.affinity.cores.size());
  return listed == 0 ? process::usable_cpu() : std::min(listed, process::usable_cpu());
}

std::uint32_t cores_of(const config& settings) {
  const auto listed = static_cast<std::uint32_t>(settings.loader.affinity.cores.size());
  return listed == 0 ? process::usable_cores() : std::min(listed, process::usable_cores());
}

std::uint32_t workers_of(const config& settings) {
  const std::uint32_t wanted = settings.loader.workers.value_or(cores_of(settings));
  const std::uint32_t fewest = has_hosts(settings.loader) ? 0 : 1;
  return std::clamp<std::uint32_t>(wanted, fewest, settings.loader.limits.max);
}

supervisor::worker_program program_of_workers(const config& settings, const process::worker_cores& cores,
                                              const shared_descriptors& fds) {
  supervisor::worker_program program;
  program.cores = cores;
  program.command = settings.loader.command;
  program.environment = supervisor::worker_environment(settings.loader.env);
  program.lifeline = fds.lifeline;
  program.arena = fds.arena;
  program.flight = fds.flights;
  program.indexes = fds.indexes;
  // Python's worker program (python/penstock/worker.py) can be a template; others cannot.
  program.forked = settings.loader.start_method == start_method_rule::from_template &&
                   settings.loader.env.contains("PENSTOCK_POOL_SETUP");
  program.template_restarts = supervision::settings_of(settings.loader.restart);
  program.template_restarts.type = restart_type::permanent;  // [loader.restart] type applies to workers only
  return program;
}

supervisor::supervisor_settings supervisor_settings_of(const config& settings, std::uint32_t workers) {
  const loader_config& l = settings.loader;
  supervisor::supervisor_settings s;
  s.rules.pool.restart = supervision::settings_of(l.restart);
  s.rules.pool.workers = workers;
  s.rules.pool.min_ready = l.limits.min;
  // Slow-starting workers, such as those that import torch, do not count as too few while they start.
  s.rules.pool.min_ready_within = std::max<nanoseconds>(s.rules.pool.min_ready_within, l.hang.start_deadline);
  s.rules.pool.sacrificial_place = sacrificial_place_of(l);
  if (has_hosts(l)) s.rules.pool.host_wait = l.hosts.wait;
  s.rules.pool.seed = settings.sampler.seed;
  s.rules.clocks = {l.hang.start_deadline, l.hang.heartbeat_timeout, l.hang.item_timeout};
  s.rules.memory_max_bytes = l.limits.memory.bytes;
  s.rules.recycle_after_samples = l.limits.recycle_after_samples;
  s.rules.exclusive = settings.gpu.exclusive;
  s.landing_slots = l.hosts.landing_slots;
  s.config = protocol::config_as_bytes(settings);
  return s;
}

void check_worker(const session_status& status, std::uint32_t worker) {
  if (std::ranges::find(status.workers, worker, &worker_status::id) != status.workers.end()) return;
  throw error({errc::usage,
               status.workers.empty() ? std::string("no worker has been started yet")
                                      : fmt::format("there is no worker {}", worker),
               0});
}

bool has_ended(const session_status& status, std::uint32_t worker) {
  const auto w = std::ranges::find(status.workers, worker, &worker_status::id);
  return w != status.workers.end() && !w->pid &&
         (w->state == child_state::stopped || w->state == child_state::backoff || w->state == child_state::failed);
}

void check_workers(const config& settings, std::uint32_t workers) {
  const std::uint32_t most = settings.loader.limits.max;
  if (workers >= 1 && workers <= most) return;
  throw error({errc::usage,
               fmt::format("{} workers: the number must be 1 to {} ([loader.limits] max)", workers, most),
               0});
}

}  // namespace penstock::host
