#include "actors/host/run.hpp"

#include "actors/host/fresh_thread.hpp"
#include "actors/host/pipeline_view.hpp"
#include "actors/host/worker_rules.hpp"
#include "actors/protocol/log_level.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/signals.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/process/cores.hpp"
#include "runtime/process/process_facts.hpp"

#include <unistd.h>

#include <filesystem>

namespace penstock::host {
namespace {

using namespace std::chrono_literals;

// Threads for the supervisor and the scheduler. Actors that may block have their own threads.
constexpr std::size_t actor_threads = 2;
constexpr auto patience_with_callbacks = 200ms;  // to deliver the events still queued

/// The files that the program writes, and the quarantine file that the session itself writes.
std::map<std::string, std::string> files_of(const run_kind& kind, const config& settings) {
  std::map<std::string, std::string> files = kind.files;
  if (!settings.quarantine.file.empty() && kind.work == work_kind::samples) files["quarantine"] = std::filesystem::absolute(settings.quarantine.file).string();
  return files;
}

/// Which processes end with this run, as its verbs report it. A launcher that has exited no longer counts.
std::function<const char*()> end_of(session_scope scope) {
  return [scope, parent = ::getppid()] {
    if (scope == session_scope::parent && ::getppid() == parent) return "parent";
    return scope == session_scope::session ? "session" : "process";
  };
}

}  // namespace

// ---- the engine -------------------------------------------------------------------------------------------

result<void> run::engine::create_shared(std::uint32_t recorders, std::optional<int> memory_node) {
  auto created_lifeline = process::lifeline::create();
  if (!created_lifeline) return tl::unexpected(std::move(created_lifeline.error()));
  lifeline = std::move(*created_lifeline);
  auto created_memory = arena::arena::create(memory_node);
  if (!created_memory) return tl::unexpected(std::move(created_memory.error()));
  memory = std::make_shared<arena::arena>(std::move(*created_memory));
  auto created_flights = arena::flight_recorders::create(recorders);
  if (!created_flights) return tl::unexpected(std::move(created_flights.error()));
  flights = std::make_shared<arena::flight_recorders>(std::move(*created_flights));
  return {};
}

void run::engine::create_threads() {
  system = std::make_unique<actors::actor_system>(actor_threads, protocol::local_messages);
  io = std::make_unique<process::io_thread>();
}

// ---- start and end ----------------------------------------------------------------------------------------

run::run(config settings, run_kind kind)
    : settings_(std::move(settings)),
      kind_(std::move(kind)),
      files_(files_of(kind_, settings_)),
      worker_cores_(value_or_throw(process::plan_cores(settings_.loader.affinity, settings_.gpu.device))),
      cores_(cores_of(settings_)),
      workers_(workers_of(settings_)),
      board_(settings_.name, std::string(kind_.placement(settings_))),
      tuning_(settings_, kind_.work, workers_),
      ending_(settings_.supervisor.shutdown) {
  board_.configured(workers_);
  log::set_level(as_log_level(settings_.log.level));
}

run::~run() = default;

std::optional<steady_time> run::begin(std::string_view what) {
  if (!ending_.begin()) return std::nullopt;
  const steady_time begun = now();
  board_.begun(begun);
  tell(event_of(event_kind::run_started, fmt::format("the {} starts with {}", what, counted(workers_.load(), "worker"))));
  if (!worker_cores_.of_owner().empty())
    log::info("session", "workers run on cores {}, which are near the GPU", process::core_list(worker_cores_.cores));
  if (kind_.on_event) {
    const all_signals_blocked quiet;
    listener_ = std::make_unique<telemetry::event_caller>(journal_, kind_.on_event);
  }
  if (kind_.control_socket && settings_.log.record) open_record();
  return begun;
}

void run::stop_readers() {
  if (listener_) listener_->stop(patience_with_callbacks);
  if (record_) record_->stop();
}

bool run::close_workers(nanoseconds at_most) {
  const std::lock_guard hold(mutex_);
  const engine* e = running();
  if (e == nullptr || !e->supervisor) return false;
  actors::tell(e->supervisor, supervisor::close_pool{at_most});
  return true;
}

// ---- commands ---------------------------------------------------------------------------------------------

bool run::pause(bool paused, pauser by) {
  const bool changes = board_.paused(paused, by, now());
  if (changes) {
    const std::string_view who = by == pauser::operator_ && !paused ? "`penstock resume`" : words_of(by);
    tell(event_of(paused ? event_kind::paused : event_kind::resumed,
                  fmt::format("{}, as requested by {}", paused ? "no new work is handed out" : "work is handed out again", who)));
  }
  const std::lock_guard hold(mutex_);
  if (running() != nullptr) pause_scheduler(paused);
  return changes;
}

void run::scale(std::uint32_t workers) {
  check_workers(settings_, workers);
  tuning_.switch_off(fmt::format("{} requested; `penstock scale auto` resumes tuning",
                                 workers == 1 ? "1 worker was" : fmt::format("{} workers were", workers)));
  change_workers(workers, "scaled to " + counted(workers, "worker"));
}

void run::scale_automatically() {
  if (!tuning_.switch_on(workers_)) {
    throw error({errc::usage, fmt::format("the number of workers of a {} is not tuned: give a number", words_for(kind_.work).run), 0});
  }
  tell(event_of(event_kind::scaled, "the number of workers is tuned from now on"));
}

void run::change_workers(std::uint32_t workers, const std::string& text) {
  const auto there = static_cast<std::uint32_t>(board_.status().workers.size());
  {
    const std::lock_guard hold(mutex_);
    // Only new places need memory: those used before have kept theirs.
    if (workers > there) value_or_throw(check_room(workers - there));
    workers_ = workers;
    if (const engine* e = running()) actors::tell(e->supervisor, supervisor::scale_pool{workers});
  }
  board_.configured(workers);
  tell(event_of(event_kind::scaled, text));
}

void run::tell_of_worker(event_kind kind, std::uint32_t worker, const std::string& text) {
  event e = event_of(kind, fmt::format("worker {} {}", worker, text));
  e.worker = worker;
  tell(std::move(e));
}

void run::restart(std::uint32_t worker, bool at_once) {
  const session_status status = board_.status();
  check_worker(status, worker);
  tell_of_worker(event_kind::restarting, worker, has_ended(status, worker) ? "is started again"
                                                 : at_once                 ? "is killed and replaced at once"
                                                                           : "finishes what it holds and is then replaced");
  const std::lock_guard hold(mutex_);
  if (const engine* e = running()) actors::tell(e->supervisor, supervisor::restart_worker{worker, at_once});
}

void run::drain(std::uint32_t worker) {
  const session_status status = board_.status();
  check_worker(status, worker);
  tuning_.switch_off(fmt::format("worker/{} was drained; `penstock scale auto` resumes tuning", worker));
  tell_of_worker(event_kind::draining, worker, has_ended(status, worker) ? "has no process, and none will be started" : "finishes what it holds and exits");
  const std::lock_guard hold(mutex_);
  if (const engine* e = running()) actors::tell(e->supervisor, supervisor::drain_worker{worker});
}

// ---- queries ----------------------------------------------------------------------------------------------

session_status run::told_status() const {
  session_status known = board_.status();
  add_to_status(known);
  return known;
}

session_status run::status() const {
  session_status known = told_status();
  {
    const std::lock_guard hold(mutex_);
    if (const engine* e = running()) known = look_closer(std::move(known), *e->flights, now(), batches_under_way());
  }
  const limits_told told = limits_at(known);
  known.limits = telemetry::limits_of(told.reading, told.advice);
  return known;
}

std::vector<batch_passage> run::batches_under_way() const {
  const batch_times* const all = times();
  return all == nullptr ? std::vector<batch_passage>() : all->under_way();
}

supervision::progress_facts run::progress_of(const engine& e) const {
  supervision::progress_facts facts;
  facts.status = look_closer(told_status(), *e.flights, now(), batches_under_way());
  facts.sacrificial_place = sacrificial_place_of(settings_.loader);
  facts.worker_start_deadline = settings_.loader.hang.start_deadline;
  facts.paused_by = board_.paused_by();
  for (const worker_status& w : facts.status.workers) {
    if (const std::uint32_t held = e.leases->of(w.id); held > 0) facts.leases.emplace(w.id, held);
  }
  add_to_progress(facts, e);
  return facts;
}

/// The io thread must not wait for mutex_: e outlives its sockets.
supervision::progress_facts run::shown_by(const engine& e) const {
  supervision::progress_facts facts = progress_of(e);
  if (e.progress) facts.status.stalled = e.progress->stalled_at(facts);
  const limits_told told = limits_at(facts.status);
  facts.status.limits = telemetry::limits_of(told.reading, told.advice);
  return facts;
}

std::chrono::system_clock::time_point run::started() const {
  return board_.status().started.value_or(std::chrono::system_clock::time_point());
}

std::string run::id() const {
  return control::session_id(settings_.name, ::getpid(), started());
}

/// The operations that mean the same for a session and a pool.
session_controls run::controls() {
  session_controls c;
  c.work = kind_.work;
  c.ends = end_of(kind_.ends);
  c.status = [this] { return status(); };
  c.times = std::make_shared<batch_times>();
  c.limits = [this] { return limits(); };
  c.waited_seconds = [this] { return board_.waited_seconds(now()); };
  c.worker_rates = [this] { return board_.worker_rates(); };
  c.waits_since = [this] { return board_.waits_since(); };
  c.killed_in = [this](bool some_work) { return ending_.killed_in(some_work, now()); };
  c.stopping_for = [this] { return ending_.stopping_for(now()); };
  c.events = [this](std::uint64_t after, std::size_t limit) { return journal_->events_after(after, limit); };
  c.deaths = [this] { return board_.report({}, now()).deaths; };
  c.owner_deaths = [this] { return board_.report({}, now()).owner_deaths; };
  c.quarantine = [this] { return board_.report({}, now()).quarantine; };
  c.lift_quarantine = [](std::uint64_t, bool) { return false; };
  c.stop = [this](bool at_once, const std::string& from) {
    const std::string by = fmt::format("`penstock stop{}`{}", at_once ? " --now" : "", from.empty() ? "" : " from " + shortened(printable(from), 80));
    stop(at_once ? std::optional(std::chrono::milliseconds(0)) : std::nullopt, by);
  };
  c.pause = [this](bool paused, pauser by) { return pause(paused, by); };
  c.paused_by = [this] { return board_.paused_by(); };
  c.scale = [this](std::optional<std::uint32_t> workers) { workers ? scale(*workers) : scale_automatically(); };
  c.tuning = [this] { return tuning_.as_json(board_.begun_at()); };
  c.restart = [this](std::uint32_t worker, bool at_once) { restart(worker, at_once); };
  c.drain = [this](std::uint32_t worker) { drain(worker); };
  c.logs = &logs_.book();
  c.files = files_;
  c.id = id();
  c.workers_max = settings_.loader.limits.max;
  return c;
}

// ---- from the supervisor ----------------------------------------------------------------------------------

void run::workers_changed(const std::vector<worker_status>& workers, bool degraded, std::uint32_t started,
                          std::uint32_t restarts) {
  board_.workers_changed(workers, degraded, started, restarts);
  for (event& one : watch_.look(workers, degraded, sacrificial_place_of(settings_.loader), kind_.work)) tell(std::move(one));
}

void run::worker_died(const death_report& death) {
  tell(event_of(board_.worker_died(death, kind_.work), kind_.work));
}

}  // namespace penstock::host
