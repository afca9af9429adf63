#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/session/control_verbs.hpp"
#include "actors/session/news_of_actors.hpp"
#include "actors/session/pipeline_view.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/process_facts.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <unistd.h>

namespace penstock {

// Callbacks reach actors that do not exist yet through the engine, which outlives them all.

void Session::body::spawn_actors(engine& e) {
  e.news = std::make_shared<news_of_actors>(*this, e);
  if (elsewhere()) {
    spawn_keeper(e);
  } else {
    spawn_owner(e);
  }
  spawn_scheduler(e);
  spawn_supervisor(e);
  spawn_session_actor(e);
  const protocol::meet all{{e.owner, e.scheduler, e.supervisor, e.session}};
  if (e.keeper) caf::anon_send(e.keeper, all);
  caf::anon_send(e.scheduler, all);
  caf::anon_send(e.supervisor, all);
  caf::anon_send(e.session, all);
}

void Session::body::spawn_owner(engine& e) {
  gpu_owner::owner_surroundings owner;
  owner.device = e.device;
  owner.consumer = consumer_;
  owner.news = e.news.get();
  owner.times = times_;
  e.owner = gpu_owner::spawn_gpu_owner(*e.system, std::move(owner));
}

void Session::body::spawn_keeper(engine& e) {
  const supervisor::owner_descriptors fds{e.lifeline.read_end.get(), e.memory->fd(), e.flights->fd()};
  e.owner_process = std::make_shared<supervisor::owner_process>(*e.io, fds);

  supervisor::keeper_surroundings around;
  around.settings = settings_;
  around.sink = options_.sink;
  around.out = options_.sink_out;
  around.digests = options_.digests;
  around.flight_page = settings_.loader.limits.max + 1;
  around.process = e.owner_process;
  around.deliveries = e.deliveries;
  around.times = times_;
  around.flights = e.flights;
  around.news = e.news.get();
  e.keeper = supervisor::spawn_owner_keeper(*e.system, std::move(around));
  e.owner = e.keeper;
  e.owner_process->report_to({e.keeper, &logs_});
}

void Session::body::spawn_scheduler(engine& e) {
  e.leases = std::make_shared<scheduler::lease_counts>(settings_.loader.limits.max + 1);
  e.scheduler = scheduler::spawn_scheduler(*e.system, {e.leases, times_, e.news.get()});
}

supervisor::worker_program Session::body::program_of_workers(const engine& e) const {
  supervisor::worker_program program;
  program.command = settings_.loader.command;
  program.environment = supervisor::worker_environment(settings_.loader.env);
  program.lifeline = e.lifeline.read_end.get();
  program.arena = e.memory->fd();
  program.flight = e.flights->fd();
  program.index = e.dataset ? e.dataset->index.get() : -1;
  return program;
}

void Session::body::spawn_supervisor(engine& e) {
  e.processes = std::make_shared<supervisor::worker_processes>(*e.io, program_of_workers(e));
  e.supervisor = supervisor::spawn_supervisor(
      *e.system, {supervisor_settings_now(), e.processes, e.flights, e.leases, e.news.get()});
  e.processes->report_to({e.supervisor, e.scheduler, e.reports, &logs_});
}

void Session::body::spawn_session_actor(engine& e) {
  session::session_surroundings around;
  around.settings = settings_;
  around.workers_wanted = [this] { return workers_.load(); };
  around.demanded = begun_;
  around.partitions = settings_.loader.limits.max + 1;
  if (e.dataset) around.expected = e.dataset->description;
  around.request = {options_.batches, resumed_};
  around.memory = e.memory;
  around.news = e.news.get();
  e.session = session::spawn_session(*e.system, std::move(around));
}

void Session::body::restart_owner(engine& e) {
  if (owner_is_irreplaceable_) {
    throw error({errc::usage,
                 "restarting the GPU owner would fail the run: its device program keeps state and gives no "
                 "snapshots (implement snapshot() and restore())",
                 0});
  }
  caf::anon_send(e.keeper, supervisor::restart_owner{});
}

void Session::body::open_control_socket(engine& e) {
  auto bound = control::bind_session_socket(settings_.name, ::getpid());
  if (!bound) {
    log::warn("control", "{}; `penstock status` and the other verbs cannot reach this session",
              bound.error().message);
    return;
  }
  if (bound->renamed) {
    log::warn("control", "another session named '{}' is running; this one is '{}'", settings_.name,
              bound->path.stem().string());
  }
  engine* const all = &e;
  session::session_controls controls;
  controls.status = [this, all] { return session::look_closer(board_.status(), *all->flights, now()); };
  controls.progress = [this, all] { return progress_now(*all); };
  controls.waited_seconds = [this] { return board_.waited_seconds(); };
  controls.times = times_;
  controls.events = [journal = journal_](std::uint64_t after, std::size_t limit) {
    return journal->events_after(after, limit);
  };
  controls.deaths = [this] { return board_.report({}, now()).deaths; };
  controls.owner_deaths = [this] { return board_.report({}, now()).owner_deaths; };
  controls.stop = [this](bool at_once) {
    if (at_once) return stop(std::chrono::milliseconds(0));
    stop(std::nullopt);
  };
  controls.pause = [this](bool paused) { pause(paused); };
  controls.scale = [this](std::uint32_t workers) { scale(workers); };
  controls.restart = [this](std::uint32_t worker) { restart(worker); };
  controls.drain = [this](std::uint32_t worker) { drain(worker); };
  if (e.keeper) controls.restart_owner = [this, all] { restart_owner(*all); };
  controls.quarantine = [this] { return board_.report({}, now()).quarantine; };
  controls.lift_quarantine = [this](std::uint64_t sample, bool for_good) {
    return lift_quarantine(sample, for_good);
  };
  controls.logs = &logs_.book();
  controls.workers_max = settings_.loader.limits.max;
  // Constructed, used and closed on the io thread.
  boost::asio::post(e.io->context(),
                    [all, controls, socket = std::make_shared<control::bound_socket>(std::move(*bound))] {
                      all->server = std::make_unique<control::control_server>(
                          all->io->context(), std::move(*socket), session::make_request_handler(controls));
                    });
}

/// A port that is in use is a warning, not a failure: the stream matters more than its metrics.
void Session::body::open_metrics(engine& e) {
  engine* const all = &e;
  boost::asio::post(e.io->context(), [this, all] {
    auto opened = telemetry::metrics_server::open(all->io->context(), settings_.metrics.listen, [this, all] {
      telemetry::metrics_facts facts = board_.metrics(now());
      facts.status = session::look_closer(std::move(facts.status), *all->flights, now());
      facts.under_way = times_->under_way();
      facts.stages = times_->histograms();
      return telemetry::metrics_text(facts, PENSTOCK_VERSION);
    });
    if (!opened) return log::warn("metrics", "{}; this session has no metrics", opened.error().message);
    log::info("metrics", "http://{}/metrics", (*opened)->address());
    all->metrics = std::move(*opened);
  });
}

supervisor::supervisor_settings Session::body::supervisor_settings_now() const {
  const loader_config& l = settings_.loader;
  supervisor::supervisor_settings s;
  s.rules.pool.restart = supervision::settings_of(l.restart);
  s.rules.pool.workers = workers_;
  s.rules.pool.min_ready = l.limits.min;
  s.rules.pool.sacrificial_place = l.limits.max;
  s.rules.pool.seed = settings_.sampler.seed;
  s.rules.clocks = {l.hang.start_deadline, l.hang.heartbeat_timeout, l.hang.item_timeout};
  s.rules.memory_max_bytes = l.limits.memory.bytes;
  s.rules.recycle_after_samples = l.limits.recycle_after_samples;
  s.rules.exclusive = settings_.gpu.exclusive;
  s.slots_per_worker = l.slots_per_worker;
  s.config = protocol::config_as_bytes(settings_);
  return s;
}

}  // namespace penstock
