// Creates a pool's actors, connects them, and records their reports.
#include "actors/caf/caf.hpp"
#include "actors/host/worker_rules.hpp"
#include "actors/jobs/job_texts.hpp"
#include "actors/jobs/pool_body.hpp"
#include "runtime/arena/job_slot.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/raised.hpp"
#include "runtime/base/thrown.hpp"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t rows_max = 256;           // jobs per lease: its table takes 64 + 256 x 80 bytes = 20
                                                  // KiB
constexpr std::size_t poisoned_jobs_kept = 1000;  // shown by `penstock quarantine`
constexpr std::uint64_t exceptions_told = 100;    // limited, because programs may use exceptions as ordinary results
// A job may run for hours; a job with a time limit sets its own timeout.
constexpr nanoseconds no_item_timeout = std::chrono::hours(24 * 365);

}  // namespace

result<void> Pool::body::spawn_device(engine& e) {
  if (!jobs::device_side::wanted(settings_)) return {};
  jobs::device_side::deps deps;
  deps.settings = &settings_;
  deps.shape = shape();
  deps.fds = {e.lifeline.read_end.get(), e.memory->fd(), e.flights->fd(), worker_cores_.of_owner()};
  deps.flights = e.flights;
  deps.board = &board_;
  deps.ending = &ending_;
  deps.logs = &logs_;
  deps.tell = [this](event what) { tell(std::move(what)); };
  auto made = jobs::device_side::make(*e.system, *e.io, std::move(deps));
  if (!made) return tl::unexpected(std::move(made.error()));
  e.device = std::move(*made);
  return {};
}

result<void> Pool::body::spawn_actors(engine& e) {
  if (auto ok = spawn_device(e); !ok) return ok;
  e.leases = std::make_shared<scheduler::lease_counts>(shape().partitions);
  jobs::job_scheduler_deps scheduling;
  scheduling.rules.max_attempts = settings_.quarantine.max_attempts;
  scheduling.rules.rows_max = rows_max;
  scheduling.rules.slot_bytes = shape().slot_bytes;
  scheduling.rules.head_bytes = arena::job_table_bytes(0);
  scheduling.rules.row_bytes = arena::job_table_bytes(2) - arena::job_table_bytes(1);
  scheduling.shape = shape();
  scheduling.leases = e.leases;
  scheduling.meter = admission_;
  scheduling.listener = this;
  // Results may outlive the pool; releasing them then needs no message.
  scheduling.left =
      std::make_shared<const jobs::slot_left>([pool = weak_from_this()](const lease_ref& lease) {
        if (const auto alive = pool.lock()) alive->result_left(lease);
      });
  admission_->wake_with([pool = weak_from_this()] {
    if (const auto alive = pool.lock()) alive->memory_freed();
  });
  if (e.device) scheduling.buffers = e.device->buffers();
  e.scheduler = jobs::spawn_job_scheduler(*e.system, std::move(scheduling));

  auto program =
      host::program_of_workers(settings_, worker_cores_, {e.lifeline.read_end.get(), e.memory->fd(), e.flights->fd(), {}});
  program.parcels = true;
  make_hub(e);
  program.remote = e.hub;
  e.processes = std::make_shared<supervisor::worker_processes>(*e.io, std::move(program));
  auto rules = host::supervisor_settings_of(settings_, workers_);
  rules.rules.clocks.item_timeout = no_item_timeout;
  rules.work = kind_.work;
  rules.jobs_are_told = judged_;
  e.supervisor =
      supervisor::spawn_supervisor(*e.system, {std::move(rules), e.processes, e.flights, e.leases, this});
  e.reports = std::make_unique<jobs::report_forwarder>(e.scheduler, [this] { return few_jobs(); });
  e.processes->report_to({e.supervisor, e.reports.get(), &logs_});

  e.host = jobs::spawn_pool_host(*e.system, {e.memory, rows_max, settings_.jobs.memory.bytes, this});

  const gpu_owner::gpu_owner_actor owner = e.device ? e.device->owner() : gpu_owner::gpu_owner_actor();
  actors::tell(e.scheduler, jobs::meet_supervisor{e.supervisor});
  actors::tell(e.scheduler, jobs::meet_owner{owner});
  actors::tell(e.supervisor, supervisor::meet_others{e.scheduler, e.host});
  actors::tell(e.host, jobs::meet_pool{e.scheduler, e.supervisor, owner});
  if (e.device) e.device->open(e.scheduler);
  return {};
}

/// Starts jobs that lacked memory.
void Pool::body::memory_freed() {
  const std::lock_guard hold(mutex_);
  if (engine_) actors::tell(engine_->scheduler, jobs::decide_jobs{});
}

void Pool::body::result_left(const lease_ref& lease) {
  if (!released_->add(lease)) return;
  const std::lock_guard hold(mutex_);
  if (engine_) actors::tell(engine_->scheduler, jobs::results_released{released_});
}

std::optional<std::string> Pool::body::who_holds_the_device() const {
  const std::lock_guard hold(mutex_);
  if (!engine_ || !engine_->device || !engine_->device->buffers()) return std::nullopt;
  return engine_->device->buffers()->held_too_long(now());
}

void Pool::body::waits_for_callers(const std::string& what) {
  log::warn(log_part(), "{}", what);
  tell(host::event_of(event_kind::stalled, what));
}

void Pool::body::counted(const tally& ended, std::span<const function_counts> functions, const under_way& now, std::uint64_t stale_dropped) {
  counts_.count(ended, functions, now);
  board_.counted(stale_dropped, of_batches_ ? std::nullopt : std::optional(poisoned_));
}

void Pool::body::functions_named(const std::vector<std::string>& names) {
  counts_.name_functions(names);
}

void Pool::body::callers_notified(std::uint64_t jobs) {
  counts_.count_notified(jobs);
}

void Pool::body::job_failed(std::uint64_t job, const std::string& work, const job_failure& why, std::uint32_t inputs) {
  if (why.status == job_status::cancelled) return;
  if (why.status == job_status::exception) return job_raised(job, work, why);
  // A data loader itself reports which samples to blame (sample_quarantined): a poisoned batch may have other causes.
  if (!of_batches_ && inputs == 1 && why.status == job_status::poisoned && poisoned_++ < poisoned_jobs_kept)
    board_.sample_quarantined({0, 0, job, work, why.text, why.attempts, why.causes});
  const std::string text = jobs::text_of_failure(job, work, why, kind_.work);
  // A data loader tells what becomes of the batch and its samples; a program that judges its jobs reports their failures.
  log::write(judged_ || of_batches_ ? log::level::debug : log::level::warn, log_part(), text);
  if (!of_batches_) tell_after_deaths(host::event_of(event_kind::job_failed, text));
}

void Pool::body::job_raised(std::uint64_t job, const std::string& work, const job_failure& why) {
  if (judged_) return;
  const bool of_python = work == "call";  // Python functions all run as "call"
  const std::string who = of_batches_ ? "a batch" : of_python ? fmt::format("job {}", job) : fmt::format("job {} ({})", job, work);
  const std::string_view traceback(why.traceback);
  // The pickled exception follows the '\0'.
  tell_raised(who, with_cause(why.type, why.text), traceback.substr(0, traceback.find('\0')));
}

void Pool::body::input_raised(std::uint64_t job, std::uint64_t index, std::string_view error, std::string_view traceback) noexcept {
  tell_raised(fmt::format("input {} of a map, in job {},", index, job), error, traceback);
}

/// The caller gets the exception in any case. This also logs it, for whoever investigates later.
void Pool::body::tell_raised(const std::string& who, std::string_view what, std::string_view traceback) {
  const std::uint64_t number = ++raised_;
  if (number > exceptions_told) return;
  const auto exception = raised_from(what, traceback);
  const std::string where = exception->frames.empty() ? "" : fmt::format(" ({})", exception->frames.back());
  event raised = host::event_of(event_kind::job_raised, fmt::format("{} raised {}: {}{}", who, exception->type, exception->message, where));
  if (number == exceptions_told) raised.text += fmt::format("; further exceptions are not listed (limit: {})", exceptions_told);
  raised.exception = exception;
  tell(std::move(raised));
}

/// Publishes the event after the deaths that the scheduler has decided on so far, which the supervisor
/// reports.
void Pool::body::tell_after_deaths(event what) {
  const std::lock_guard hold(mutex_);
  if (!engine_) return tell(std::move(what));
  actors::tell(engine_->supervisor, supervisor::when_handled{[this, what = std::move(what)] { tell(what); }});
}

}  // namespace penstock
