#include "actors/session/wiring.hpp"

#include "actors/protocol/config_bytes.hpp"
#include "runtime/base/log.hpp"
#include "runtime/group/launcher_environment.hpp"
#include "runtime/group/rank_files.hpp"
#include "runtime/group/this_process.hpp"
#include "runtime/process/process_facts.hpp"

#include <boost/asio/post.hpp>
#include <unistd.h>

#include <algorithm>

namespace penstock::session {

std::uint32_t workers_of(const config& settings) {
  const std::uint32_t wanted = settings.loader.workers.value_or(process::usable_cores());
  return std::clamp<std::uint32_t>(wanted, 1, settings.loader.limits.max);
}

supervisor::worker_program program_of_workers(const config& settings, const shared_descriptors& fds) {
  supervisor::worker_program program;
  program.command = settings.loader.command;
  program.environment = supervisor::worker_environment(settings.loader.env);
  program.lifeline = fds.lifeline;
  program.arena = fds.arena;
  program.flight = fds.flights;
  program.index = fds.index;
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
  s.rules.pool.sacrificial_place = l.limits.max;
  s.rules.pool.seed = settings.sampler.seed;
  s.rules.clocks = {l.hang.start_deadline, l.hang.heartbeat_timeout, l.hang.item_timeout};
  s.rules.memory_max_bytes = l.limits.memory.bytes;
  s.rules.recycle_after_samples = l.limits.recycle_after_samples;
  s.rules.exclusive = settings.gpu.exclusive;
  s.slots_per_worker = l.slots_per_worker;
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

std::optional<control::rank_note> rank_named(const std::string& name) {
  const auto place = group::place_in(group::variable_of_this_process).value_or(std::nullopt);
  if (!place) return std::nullopt;
  const std::string suffix = group::with_rank("", place->rank);
  if (!name.ends_with(suffix)) return std::nullopt;
  return control::rank_note{place->job, name.substr(0, name.size() - suffix.size()), place->rank};
}

std::function<const char*()> end_of(session_scope scope) {
  return [scope, parent = ::getppid()] {
    if (scope == session_scope::parent && ::getppid() == parent) return "parent";
    return scope == session_scope::session ? "session" : "process";
  };
}

void open_control_socket(process::io_thread& io, const std::string& name, session_controls controls,
                         std::unique_ptr<control::control_server>& server) {
  auto bound = control::bind_session_socket(name, ::getpid(), rank_named(name));
  if (!bound) {
    log::warn("control", "{}; `penstock status` and the other verbs cannot reach this session",
              bound.error().message);
    return;
  }
  if (bound->renamed) {
    log::debug("control", "another session named '{}' is running; this one is '{}'", name,
               bound->path.stem().string());
  }
  boost::asio::post(io.context(), [&io, &server, controls = std::move(controls),
                                   socket = std::make_shared<control::bound_socket>(std::move(*bound))] {
    server = std::make_unique<control::control_server>(io.context(), std::move(*socket),
                                                       make_request_handler(controls));
  });
}

void open_metrics(process::io_thread& io, const std::string& listen,
                  std::function<telemetry::metrics_facts()> facts,
                  std::unique_ptr<telemetry::metrics_server>& server) {
  boost::asio::post(io.context(), [&io, &server, listen, facts = std::move(facts)] {
    auto opened = telemetry::metrics_server::open(
        io.context(), listen, [facts] { return telemetry::metrics_text(facts(), PENSTOCK_VERSION); });
    if (!opened) return log::warn("metrics", "{}; this session has no metrics", opened.error().message);
    log::info("metrics", "http://{}/metrics", (*opened)->address());
    server = std::move(*opened);
  });
}

}  // namespace penstock::session
