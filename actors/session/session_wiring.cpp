#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/protocol/config_bytes.hpp"
#include "actors/session/control_verbs.hpp"
#include "actors/session/pipeline_view.hpp"
#include "actors/session/session_body.hpp"
#include "runtime/base/log.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/process_facts.hpp"

#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <unistd.h>

namespace penstock {
namespace {

/// Planned samples of a part of the stream. All batches but an epoch's last are full.
std::uint64_t samples_in(const plan& order, schedule::stream_range range) {
  const std::uint64_t per_epoch = order.batches_per_epoch();
  if (per_epoch == 0) return 0;
  const auto before = [&](stream_position p) {
    return p / per_epoch * order.expected_samples() + p % per_epoch * order.settings().batch_size;
  };
  return before(range.end) - before(range.first);
}

}  // namespace

// Actors that do not exist yet are reached through the engine, which outlives them all.

void Session::body::spawn_actors(engine& e) {
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
  engine* const all = &e;
  owner.opened = [this, all](const device::identity& what) { owner_opened(*all, what); };
  owner.failed = [this](const failure& why) {
    board_.device_state("failed");
    tell(session::event_of(event_kind::device_failed, why.message));
    fail(why);
  };
  owner.slots_released = [all](std::vector<std::uint64_t> uploads) {
    caf::anon_send(all->scheduler, scheduler::slots_released{std::move(uploads)});
  };
  owner.progressed = [this](std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
    board_.uploaded(uploads, bytes, pinned);
  };
  owner.times = times_;
  e.owner = gpu_owner::spawn_gpu_owner(*e.system, std::move(owner));
}

void Session::body::owner_opened(engine& e, const device::identity& what) {
  if (what.uuid && !settings_.gpu.share) {
    auto ours = device::exclusive_use::take(*what.uuid);
    if (!ours) return fail(ours.error());
    e.lock.emplace(std::move(*ours));
  }
  if (what.uuid && !elsewhere()) {
    // Never from a session that leaves the GPU to another process: asking opens the GPU's device files.
    e.watch.emplace(*what.uuid,
                    [this](const std::vector<gpu_process>& seen) { board_.gpu_processes_seen(seen); });
  }
  board_.device_opened(what);
  tell(session::event_of(event_kind::device_opened, what.name));
  log::debug("gpu", "opened {}", what.name);
  caf::anon_send(e.session, session::device_ready{});
}

void Session::body::spawn_keeper(engine& e) {
  engine* const all = &e;
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
  around.news.opened = [this, all](const device::identity& what) { owner_opened(*all, what); };
  around.news.changed = [this](const supervisor::owner_facts& facts) {
    board_.owner_changed(facts.state, facts.pid, facts.restarts);
    owner_is_irreplaceable_ = facts.irreplaceable;
  };
  around.news.died = [this](const owner_death_report& death) {
    board_.owner_died(death);
    tell(session::event_of(death));
  };
  around.news.reopened = [this](pid_t owner) {
    event opened = session::event_of(event_kind::device_opened,
                                     fmt::format("{}, by another GPU owner", board_.status().gpu.name));
    opened.pid = owner;
    tell(std::move(opened));
  };
  around.news.recovered = [this](std::uint32_t incarnation, double seconds) {
    board_.owner_recovered(incarnation, seconds);
  };
  around.news.progressed = [this](std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
    board_.uploaded(uploads, bytes, pinned);
  };
  around.news.processes_seen = [this](std::vector<gpu_process> seen) {
    board_.gpu_processes_seen(std::move(seen));
  };
  around.news.waited = [this](nanoseconds in_all) { board_.waited(in_all); };
  around.news.gave_up = [this](const failure& why) { fail(why); };
  around.news.closed = [this] { ending_.owner_gone(); };
  e.keeper = supervisor::spawn_owner_keeper(*e.system, std::move(around));
  e.owner = e.keeper;
  e.owner_process->report_to({e.keeper, [this](std::uint32_t incarnation) { logs_.begin("gpu", incarnation); },
                              [this](std::uint32_t incarnation, std::string_view line) {
                                logs_.wrote("gpu", incarnation, line);
                              },
                              [this] { logs_.ended("gpu"); }});
}

void Session::body::spawn_scheduler(engine& e) {
  engine* const all = &e;
  scheduler::scheduler_news news;
  e.leases = std::make_shared<scheduler::lease_counts>(settings_.loader.limits.max + 1);
  news.leases = e.leases;
  news.sample_failed = [this](const scheduler::lost_sample& lost) {
    log::warn("scheduler", "sample {} ({}) failed: {}", lost.sample, lost.name, lost.reason);
    board_.sample_failed(lost);
    tell(session::event_of_failed(lost));
  };
  news.sample_quarantined = [this, all](const scheduler::lost_sample& lost) {
    log::warn("scheduler", "sample {} ({}) is quarantined: it killed {} workers", lost.sample, lost.name,
              lost.attempts);
    board_.sample_quarantined(lost);
    tell(session::event_of_quarantined(lost));
    caf::anon_send(all->session, session::sample_quarantined{lost});
  };
  news.delivered = [this](const schedule::delivery& batch, std::uint64_t epoch) {
    board_.delivered(batch, epoch);
    if (elsewhere()) board_.batch_taken(now());
  };
  news.batch_recovered = [this](std::uint64_t epoch, std::uint64_t sequence) {
    tell(session::event_of_recovered(epoch, sequence));
  };
  news.epoch_done = [this](const schedule::epoch_account& done) { tell(session::event_of(done)); };
  news.counted = [this](std::uint64_t stale, std::uint64_t quarantined) {
    board_.counted(stale, quarantined);
  };
  news.gave_up = [this](const failure& why) { fail(why); };
  news.stream_finished = [this](std::uint64_t seek_number) { consumer_->finish(seek_number); };
  news.times = times_;
  e.scheduler = scheduler::spawn_scheduler(*e.system, std::move(news));
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

  supervisor::supervisor_news supervision;
  supervision.changed = [this](const std::vector<worker_status>& workers, bool degraded,
                               std::uint32_t started, std::uint32_t restarts) {
    board_.workers_changed(workers, degraded, started, restarts);
    for (event& one : watch_.look(workers, degraded)) tell(std::move(one));
  };
  supervision.worker_died = [this](const death_report& death) {
    board_.worker_died(death);
    tell(session::event_of(death));
  };
  supervision.gave_up = [this](const failure& why) { fail(why); };
  supervision.pool_closed = [this] { ending_.pool_gone(); };
  e.supervisor = supervisor::spawn_supervisor(*e.system, {supervisor_settings_now(), e.processes,
                                                          e.flights, e.leases, std::move(supervision)});
  e.processes->report_to({e.supervisor, e.scheduler, e.reports, [this](worker_ref who) { logs_.started(who); },
                          [this](worker_ref who, std::string_view line) { logs_.wrote(who, line); },
                          [this](worker_ref who) { logs_.ended(who); }});
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
  around.planned = [this](std::shared_ptr<const plan> order,
                          std::shared_ptr<const device::transfer_plan> transfer,
                          schedule::stream_range range) {
    board_.planned(samples_in(*order, range));
    tell(session::event_of(event_kind::stream_opened,
                           fmt::format("{} batches an epoch of {} samples", order->batches_per_epoch(),
                                       order->expected_samples())));
    cursor_.open(std::move(order), std::move(transfer), range);
  };
  around.quarantine_known = [this](const std::vector<quarantine_report>& known) {
    board_.quarantine_known(known);
  };
  around.failed = [this](const failure& why) { fail(why); };
  e.session = session::spawn_session(*e.system, std::move(around));
}

void Session::body::restart_owner(engine& e) {
  if (owner_is_irreplaceable_) {
    throw error(
        {errc::usage,
         "the GPU owner cannot be restarted without failing the run: its device program keeps state and "
         "gives no snapshots (implement snapshot() and restore())",
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

/// A port that is taken is a warning, not a failure: the stream matters more than its numbers.
void Session::body::open_metrics(engine& e) {
  engine* const all = &e;
  boost::asio::post(e.io->context(), [this, all] {
    auto opened = control::metrics_server::open(all->io->context(), settings_.metrics.listen, [this, all] {
      control::metrics_facts facts = board_.metrics(now());
      facts.status = session::look_closer(std::move(facts.status), *all->flights, now());
      facts.under_way = times_->under_way();
      facts.stages = times_->histograms();
      return control::metrics_text(facts, PENSTOCK_VERSION);
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
