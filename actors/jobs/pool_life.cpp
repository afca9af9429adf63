#include "actors/caf/shared_actor.hpp"
#include "actors/host/fresh_thread.hpp"
#include "actors/jobs/pool_body.hpp"
#include "actors/session/sizing.hpp"
#include "runtime/arena/memory_budget.hpp"
#include "runtime/base/raised.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/worker_places.hpp"
#include "runtime/base/worker_slots.hpp"
#include "runtime/config/validate.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t usual_slot_bytes = 1U << 20U;
constexpr std::chrono::milliseconds end_of_cancelled = 2s;

host::run_kind kind_of(const pool_options& options) {
  host::run_kind kind;
  kind.placement = [](const config& settings) -> std::string_view {
    return jobs::device_side::wanted(settings) && settings.gpu.placement == placement_rule::process
               ? "process"
               : "embedded";
  };
  kind.work = options.of_batches ? work_kind::batches : work_kind::jobs;
  kind.progresses = words_for(kind.work).run;
  kind.control_socket = options.control_socket;
  kind.ends = options.ends;
  kind.on_event = options.on_event;
  kind.files = options.files;
  return kind;
}

}  // namespace

Pool::body::body(config settings, pool_options options)
    : run(value_or_throw(config_file::accept(std::move(settings), config_file::process_environment(),
                                             config_file::config_purpose::jobs)),
          kind_of(options)),
      judged_(options.judged),
      counts_(options.judged),
      admission_(std::make_shared<jobs::admission>(settings_.jobs.queue, settings_.jobs.memory.bytes)),
      callbacks_(std::move(options.around_callbacks)),
      of_batches_(options.of_batches),
      hosted_(std::move(options.hosted)) {
  board_.has_slots(slots_of_a_pool_worker(settings_.loader));
}

void Pool::body::start() {
  if (!begin(words_for(kind_.work).run)) return;
  if (auto ok = try_start(); !ok) {
    board_.ended(run_outcome::failed, ok.error(), now());
    tell(host::event_of(event_kind::run_failed, ok.error().message));
    stop_readers();  // they query this object, which is about to be destroyed
    throw error(ok.error());
  }
}

arena::geometry Pool::body::shape() const {
  const std::uint64_t slot =
      settings_.loader.slot_bytes ? settings_.loader.slot_bytes->bytes : usual_slot_bytes;
  return {round_up(slot, arena::page_bytes), slots_of_a_pool_worker(settings_.loader), places_of(settings_.loader)};
}

result<void> Pool::body::try_start() {
  auto e = std::make_unique<engine>();
  if (auto ok = jobs::device_side::check(settings_, shape()); !ok) return ok;
  if (auto ok = prepare_hosts(); !ok) return ok;
  const std::uint32_t owners = jobs::device_side::wanted(settings_) ? 1 : 0;
  if (auto ok = e->create_shared(shape().partitions + owners, worker_cores_.node); !ok) return ok;
  if (auto ok = check_room(workers_); !ok) return ok;
  if (auto ok = e->memory->size_and_seal(shape()); !ok) return ok;
  result<void> spawned;
  host::on_a_fresh_thread([&] {
    e->create_threads();
    spawned = spawn_actors(*e);
    if (spawned && e->hub) {
      spawned = e->hub->open(e->supervisor);
      if (!spawned) end_actors(*e);
    }
    if (!spawned) e.reset();
  });
  if (!spawned) return spawned;
  open_sockets(*e);
  // Set only now: callbacks from the actors may need the engine.
  const std::lock_guard hold(mutex_);
  engine_ = std::move(e);
  actors::tell(engine_->supervisor, supervisor::open_pool{});
  return {};
}

// ---- orders -----------------------------------------------------------------------------------------------

void Pool::body::pause_scheduler(bool paused) {
  actors::tell(engine_->scheduler, jobs::pause_jobs{paused});
}

result<void> Pool::body::check_room(std::uint32_t more_workers) const {
  return arena::check_memory(session::memory_need_of(settings_, shape(), more_workers),
                             arena::memory_limits());
}

// ---- the end ----------------------------------------------------------------------------------------------

void Pool::body::cancel_everything(const failure& why) {
  admission_->close(why);
  const std::lock_guard hold(mutex_);
  if (engine_ && engine_->scheduler) actors::tell(engine_->scheduler, jobs::cancel_all{why});
}

void Pool::body::gave_up(const failure& why) {
  if (board_.ended(run_outcome::failed, why, now()))
    tell(host::event_of(event_kind::run_failed, why.message));
  cancel_everything(why);
  close_workers(supervision::shares_of(host::end_of_dropped).items);
}

void Pool::body::stop(std::optional<std::chrono::milliseconds> at_most, std::string_view by) noexcept {
  ending_.asked_by(by);
  if (board_.stopping()) tell(host::event_of(event_kind::stopping, fmt::format("the {} was asked to stop by {}", words_for(kind_.work).run, ending_.who_asked())));
  // Every job is cancelled, so no caller waits for running ones: workers get the same grace period as for a
  // cancelled job.
  const nanoseconds allowed = at_most ? nanoseconds(*at_most) : settings_.supervisor.shutdown;
  ending_.stop(std::min<nanoseconds>(allowed, end_of_cancelled));
  cancel_everything({errc::stopped, fmt::format("the {} was stopped by {}", words_for(kind_.work).run, ending_.who_asked()), 0});
  close_workers(ending_.shares().items);
}

void Pool::body::tell_closed() {
  const std::string who = ending_.who_asked();
  const std::string failed = ending_.why_failed();
  if (!board_.ended_if_running(who.empty() ? run_outcome::finished : run_outcome::stopped, now(), failed)) return;
  if (!failed.empty()) return tell(host::event_of(event_kind::run_failed, failed));
  tell(who.empty() ? host::event_of(event_kind::run_finished, fmt::format("the {} was closed", words_for(kind_.work).run))
                   : host::event_of(event_kind::run_stopped, "it was stopped by " + who));
}

/// Ends, in this order, the workers, the device and the actors.
void Pool::body::end_actors(engine& e) {
  if (e.hub) e.hub->shut_down();
  e.processes->shut_down();
  if (e.device) e.device->close();
  actors::tell(e.scheduler, jobs::stop_jobs{});
  actors::tell(e.host, session::leave{});
  actors::stop(e.supervisor);
  e.system->await_all_actors_done();
}

void Pool::body::close() noexcept {
  const std::lock_guard one_at_a_time(close_mutex_);
  if (!ending_.stopped()) ending_.stop(host::end_of_dropped);
  ending_.close();
  cancel_everything({errc::stopped, fmt::format("the {} was closed", words_for(kind_.work).run), 0});
  engine* e = nullptr;
  {
    const std::lock_guard hold(mutex_);
    e = engine_.get();
  }
  if (close_workers(ending_.shares().items)) {
    ending_.wait_for_pool();
    tell_closed();
    close_sockets(*e);
    end_actors(*e);
  }
  callbacks_.stop();
  stop_readers();
  {
    const std::unique_lock nobody_sends(engine_stays_);
    const std::lock_guard hold(mutex_);
    if (engine_) host::on_a_fresh_thread([&] { engine_.reset(); });
  }
  fail_orphans(submissions_->take());
}

// ---- a data loader's batches ------------------------------------------------------------------------------

void Pool::body::await_batch(std::uint64_t job, batch_mark doing) noexcept {
  if (awaited_.wait(job, std::move(doing), now())) board_.wait_begins(now());
}

void Pool::body::batch_came() noexcept {
  if (awaited_.came(now())) board_.wait_ends(now());
}

void Pool::body::leases_lost(std::span<const schedule::lost_lease> leases) {
  for (const schedule::lost_lease& one : leases) {
    if (of_batches_) awaited_.lost(one.job, one.leased);
  }
}

void Pool::body::leased_again(std::uint64_t job, steady_time now) {
  if (of_batches_) awaited_.leased(job, now);
}

void Pool::body::batch_was_slow(const slow_batch& batch) noexcept {
  awaited_.was_slow(batch);
  for (const slow_batch::sample& one : batch.slowest)
    slowest_.note({one.index.value_or(not_numbered), one.name, one.took}, batch.worker, now());
}

void Pool::body::batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out) noexcept {
  board_.loader_batch_taken(epoch, samples, left_out, now());
}

void Pool::body::batch_lost(lost_batch lost) noexcept {
  board_.batch_lost(lost.samples - lost.quarantined);
  event told = host::event_of(std::move(lost), listable_samples_);
  listable_samples_ -= told.samples.size();
  tell_after_deaths(std::move(told));
}

void Pool::body::sample_failed(const loader_sample& which, std::string_view error, std::string text, std::string_view traceback) noexcept {
  event failed = host::event_of_loader(event_kind::sample_failed, which, std::move(text));
  failed.exception = raised_from(error, traceback);
  board_.sample_failed(host::lost_sample_of(which, std::string(error), {}), failed.exception);
  tell(std::move(failed));
}

void Pool::body::sample_quarantined(const loader_sample& which, std::vector<std::string> causes, bool known) noexcept {
  scheduler::lost_sample lost = host::lost_sample_of(which, {}, std::move(causes));
  board_.loader_quarantined(lost, known);
  if (!known) tell_after_deaths(host::event_of_loader(event_kind::sample_quarantined, which, host::text_of_quarantined(which.name, lost)));
}

void Pool::body::warn(std::string_view text) noexcept {
  log::warn("loader", "{}", text);
}

void Pool::body::add_to_progress(supervision::progress_facts& facts, const run::engine& e) const {
  facts.batch = awaited_.now();
  facts.slow_loads = awaited_.slow_loads();
  facts.consumer_waits = facts.batch.has_value();
  facts.now = now();
  facts.lost_waits = awaited_.lost_waits(facts.now);
  if (facts.batch) facts.standing = host::standing_of(facts.status, first_remote_place_of(settings_.loader), *e.flights);
}

// ---- queries ----------------------------------------------------------------------------------------------

pool_statistics Pool::body::statistics() const {
  const jobs::admission::counts held = admission_->now();
  pool_statistics all = counts_.statistics();
  all.callers_wait = held.callers_wait;
  all.callers_hold_everything = held.callers_hold_everything;
  all.memory_bytes = settings_.jobs.memory.bytes;
  all.argument_bytes = held.argument_bytes;
  all.result_bytes = held.result_bytes;
  all.of_batches = of_batches_;
  return all;
}

run_report Pool::body::report() const {
  run_report all = board_.report({}, now());
  all.jobs = status().jobs;
  return all;
}

}  // namespace penstock
