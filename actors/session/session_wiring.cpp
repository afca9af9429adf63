#include "actors/caf/caf.hpp"
#include "actors/gpu_owner/gpu_owner.hpp"
#include "actors/host/worker_rules.hpp"
#include "actors/session/session_listener.hpp"
#include "actors/session/session_body.hpp"
#include "actors/supervisor/owner_rules.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/process/crash_notes.hpp"
#include "runtime/process/process_facts.hpp"

#include <unistd.h>

namespace penstock {

// Callbacks may run before their actors exist; they reach the actors through the engine, which outlives them
// all.

void Session::body::spawn_actors(engine& e) {
  e.listener = std::make_shared<session_listener>(*this, e);
  if (group_) spawn_group(e);
  if (has_keeper()) {
    spawn_keeper(e);
  } else {
    spawn_owner(e);
  }
  spawn_scheduler(e);
  spawn_supervisor(e);
  spawn_session_actor(e);
  const protocol::meet all{{e.owner, e.scheduler, e.supervisor, e.session}};
  if (e.keeper) actors::tell(e.keeper, all);
  actors::tell(e.scheduler, all);
  actors::tell(e.supervisor, supervisor::meet_others{e.scheduler, e.session});
  actors::tell(e.session, all);
}

void Session::body::spawn_owner(engine& e) {
  gpu_owner::owner_deps owner;
  owner.device = e.device;
  owner.consumer = consumer_;
  owner.listener = e.listener.get();
  owner.times = times_;
  e.owner = gpu_owner::spawn_gpu_owner(*e.system, std::move(owner));
}

void Session::body::spawn_keeper(engine& e) {
  if (owner_is_inside()) {
    e.owner_inside = std::make_shared<session::owner_inside>(
        *e.io,
        session::owner_inside::deps{e.memory->fd(), e.flights->fd(), settings_.group.abort_timeout});
  } else {
    const supervisor::owner_descriptors fds{e.lifeline.read_end.get(), e.memory->fd(), e.flights->fd(),
                                            worker_cores_.of_owner()};
    e.owner_process = std::make_shared<supervisor::owner_process>(*e.io, fds);
  }

  supervisor::keeper_deps deps;
  deps.settings = settings_;
  deps.sink = options_.sink;
  deps.out = options_.sink_out;
  deps.digests = options_.digests;
  deps.flight_page = places_of(settings_.loader);
  deps.process = e.owner_process;
  if (e.owner_inside) deps.process = e.owner_inside;
  deps.deliveries = e.deliveries;
  deps.times = times_;
  deps.flights = e.flights;
  deps.listener = e.listener.get();
  e.keeper = supervisor::spawn_owner_keeper(*e.system, std::move(deps));
  e.owner = e.keeper;
  if (e.owner_process) return e.owner_process->report_to({e.keeper, &logs_});
  e.owner_inside->report_to([keeper = e.keeper](session::owner_inside::news what) {
    std::visit([&](auto& one) { actors::tell(keeper, std::move(one)); }, what);
  });
}

void Session::body::spawn_scheduler(engine& e) {
  e.leases = std::make_shared<scheduler::lease_counts>(places_of(settings_.loader));
  // Two workers may load a batch only if samples have more than one attempt: otherwise the death of either worker would
  // quarantine a sample.
  const bool may_start_twice = has_hosts(settings_.loader) && settings_.quarantine.max_attempts > 1;
  e.scheduler = scheduler::spawn_scheduler(
      *e.system, {e.leases, times_, e.listener.get(), group_ ? group_->gate : nullptr, has_keeper(),
                  settings_.loader.hedge ? e.flights : nullptr,
                  may_start_twice ? std::optional(first_remote_place_of(settings_.loader)) : std::nullopt});
}

void Session::body::spawn_supervisor(engine& e) {
  auto program = host::program_of_workers(settings_, worker_cores_, {e.lifeline.read_end.get(), e.memory->fd(), e.flights->fd(),
                                           e.dataset ? e.dataset->descriptors() : std::vector<int>()});
  program.remote = e.hub;
  e.processes = std::make_shared<supervisor::worker_processes>(*e.io, std::move(program));
  e.supervisor = supervisor::spawn_supervisor(
      *e.system, {host::supervisor_settings_of(settings_, workers_), e.processes, e.flights, e.leases, this});
  e.reports = std::make_unique<scheduler::report_forwarder>(e.scheduler);
  e.processes->report_to({e.supervisor, e.reports.get(), &logs_});
}

void Session::body::spawn_session_actor(engine& e) {
  session::session_deps deps;
  deps.settings = settings_;
  deps.workers_wanted = [this] { return workers_.load(); };
  deps.demanded = begun_;
  deps.partitions = places_of(settings_.loader);
  if (e.dataset) {
    deps.expected = e.dataset->description;
    deps.order = e.dataset->order;
    deps.from_store = e.dataset->in_store;
  }
  if (e.custom) {
    deps.expected = e.custom->dataset;
    deps.expected->fingerprint = session::fingerprint_of_custom(e.custom->dataset);
  }
  deps.owner_maps_partitions = has_keeper();
  deps.request = {options_.batches, resumed_};
  deps.memory = e.memory;
  deps.listener = e.listener.get();
  e.session = session::spawn_session(*e.system, std::move(deps));
}

void Session::body::restart_owner(engine& e) {
  if (owner_is_irreplaceable_) {
    throw error({errc::usage,
                 "restarting the GPU owner would fail the run: its device program keeps state and provides "
                 "no snapshots (implement snapshot() and restore())",
                 0});
  }
  tell(host::event_of(event_kind::restarting, "the GPU owner is replaced at once"));
  actors::tell(e.keeper, supervisor::restart_owner{});
}

void Session::body::add_verbs(host::session_controls& controls, run::engine& of_run) {
  auto& e = static_cast<engine&>(of_run);
  controls.times = times_;
  if (e.hub) {
    controls.drain_host = [hub = e.hub](const std::string& name) { return hub->send_away(name); };
    controls.scale_host = [hub = e.hub](const std::string& name, std::uint32_t workers) { return hub->scale(name, workers); };
  }
  if (e.keeper) controls.restart_owner = [this, &e] { restart_owner(e); };
  controls.lift_quarantine = [this](std::uint64_t sample, bool for_good) {
    return lift_quarantine(sample, for_good);
  };
}

void Session::body::add_to_metrics(telemetry::metrics_facts& facts) const {
  facts.under_way = times_->under_way();
  facts.stages = times_->histograms();
}

void Session::body::add_to_progress(supervision::progress_facts& facts, const run::engine& e) const {
  facts.under_way = times_->under_way();
  facts.released = times_->released();
  facts.seeks = times_->seeks();
  facts.buffers = settings_.gpu.buffers;
  facts.owner_start_deadline = supervisor::owner_start_deadline;
  facts.consumer_waits = taking_;
  facts.owner_is_elsewhere = has_keeper();
  facts.owner_is_frozen = has_keeper() && facts.status.gpu_pid && process::wait_channel(*facts.status.gpu_pid) == suspended_channel;
  facts.loading = host::loading_of(facts.status, *e.flights);
  facts.standing = host::standing_of(facts.status, first_remote_place_of(settings_.loader), *e.flights);
}

/// Without workers there are no further uploads.
void Session::body::retire() noexcept {
  if (!ending_.stopped()) end_within(std::nullopt);
  leave_group();
  wait_for_pool();
  engine* e = nullptr;
  {
    const std::lock_guard hold(mutex_);
    e = engine_.get();
  }
  if (e == nullptr) return;
  ending_.wait_for_group();
  drop_group(*e);
  close_sockets(*e);
  e->listener->release_gpu();
}

}  // namespace penstock
