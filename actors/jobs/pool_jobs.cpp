// Jobs on their way into a pool, and those that end before they reach its scheduler.
#include "actors/caf/shared_actor.hpp"
#include "actors/jobs/pool_body.hpp"
#include "runtime/base/patient_wait.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_places.hpp"

#include <fmt/format.h>

#include <future>
#include <ranges>
#include <utility>

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_deadline = 2s;

}  // namespace

/// Throws error (errc::usage) for what this pool cannot do.
jobs::job_rules Pool::body::rules_of(const job_options& options) const {
  jobs::job_rules rules{options.timeout.value_or(settings_.jobs.timeout.value_or(nanoseconds(0))),
                        options.idempotent.value_or(settings_.jobs.idempotent),
                        options.fresh.value_or(settings_.jobs.fresh)};
  const bool on_host = hosts_ && options.worker.value_or(0) >= first_remote_place_of(settings_.loader) &&
                       *options.worker < places_of(settings_.loader);
  if (const std::uint32_t there = workers_.load(std::memory_order_relaxed);
      options.worker && *options.worker >= there && !on_host) {
    throw error(
        {errc::usage,
         fmt::format("submitting a job for worker {}: {}", *options.worker,
                     there == 1 ? "there is only worker 0"
                                : fmt::format("there are {} workers, numbers 0 to {}", there, there - 1)),
         0});
  }
  rules.place = options.worker;
  rules.urgent = options.urgent;
  rules.known_as = options.known_as;
  rules.again = options.again;
  rules.former = options.former;
  rules.lost_before = options.lost_before;
  rules.attempts_before = options.attempts_before;
  rules.inputs = options.inputs;
  rules.to_device = options.on_device || !options.program.empty();
  rules.stays_there = options.on_device;
  if (!rules.to_device) return rules;
  if (!jobs::device_side::wanted(settings_))
    throw error(
        {errc::usage, "this pool has no GPU owner: set [jobs] gpu, or name programs in [jobs.programs]", 0});
  if (options.on_device && settings_.gpu.placement == placement_rule::process) {
    throw error({errc::usage,
                 "a result cannot stay on the device of another process: set [gpu] placement = \"embedded\", "
                 "or use a device program that returns bytes",
                 0});
  }
  if (options.program.empty()) return rules;
  const auto& programs = settings_.jobs.programs;
  const auto found = programs.find(options.program);
  if (found == programs.end()) {
    const std::string names = fmt::format("{}", fmt::join(std::views::keys(programs), ", "));
    throw error({errc::usage,
                 fmt::format("there is no device program '{}' in [jobs.programs]; available: {}",
                             printable(options.program), names.empty() ? "none" : names),
                 0});
  }
  rules.program = static_cast<std::uint32_t>(std::distance(programs.begin(), found));
  return rules;
}

schedule::submitter Pool::body::submitter_of(const jobs::job_rules& rules) const {
  if (rules.urgent) return schedule::submitter::urgent;
  return jobs::this_thread() == callbacks_.number() ? schedule::submitter::callback
                                                    : schedule::submitter::caller;
}

Job Pool::body::enter(std::string_view function, Argument argument, jobs::job_rules rules) {
  std::shared_ptr<jobs::job_record> record;
  bool first = false;
  if (rules.again && of_batches_) board_.batch_repeated(std::exchange(rules.lost_before, true));
  {
    const std::lock_guard in_order(submit_mutex_);  // jobs reach the scheduler in the order of their numbers
    record = std::make_shared<jobs::job_record>(rules.again ? counts_.submit_again(function) : counts_.submit(), std::string(function),
                                                std::move(argument), rules, weak_from_this(), process());
    if (rules.former) awaited_.repeats(record->number(), *rules.former);
    first = submissions_->add(record);
  }
  if (first) announce_submissions();
  return job_access::make(std::move(record));
}

/// A worker is idle, so starting a job soon matters more than batching messages.
bool Pool::body::few_jobs() const noexcept {
  const std::uint64_t ended = counts_.ended();
  return counts_.submitted() - ended <= workers_.load(std::memory_order_relaxed);
}

void Pool::body::announce_submissions() {
  std::shared_lock<std::shared_mutex> stays;
  if (few_jobs()) stays = std::shared_lock(engine_stays_);
  std::unique_lock hold(mutex_);
  if (!engine_) {
    const auto orphans = submissions_->take();
    hold.unlock();
    if (stays) stays.unlock();
    return fail_orphans(orphans);
  }
  engine& e = *engine_;
  if (!stays) return actors::tell(e.scheduler, jobs::jobs_submitted{submissions_});
  hold.unlock();  // the scheduler's reports lock mutex_
  actors::tell_and_run(e.scheduler, jobs::jobs_submitted{submissions_});
}

Job Pool::body::submit(std::string_view function, Argument argument, const job_options& options,
                       nanoseconds patience) {
  const jobs::job_rules rules = rules_of(options);
  const auto bounded = std::clamp<nanoseconds>(patience, nanoseconds(0), jobs::longest_wait);
  value_or_throw(admission_->enter(argument.bytes().size(), now() + bounded, submitter_of(rules)));
  return enter(function, std::move(argument), rules);
}

std::optional<Job> Pool::body::try_submit(std::string_view function, Argument argument,
                                          const job_options& options) {
  const jobs::job_rules rules = rules_of(options);
  if (!value_or_throw(admission_->try_enter(argument.bytes().size(), submitter_of(rules))))
    return std::nullopt;
  return enter(function, std::move(argument), rules);
}

Job Pool::body::refuse_job(std::string_view function, const job_options& options, std::string why) {
  auto record = std::make_shared<jobs::job_record>(counts_.submit(), std::string(function), Argument(), rules_of(options), weak_from_this(), process());
  const job_failure failed{job_status::too_large, {}, std::move(why), {}, {}, 0};
  job_failed(record->known_as(), record->function(), failed, 1);
  record->fail(failed);
  counts_.count_orphans(1, false);
  return job_access::make(std::move(record));
}

/// Fails jobs that were admitted while the pool was ending and that no actor will process. Call without locks: freeing an
/// argument may run the caller's code.
void Pool::body::fail_orphans(const std::vector<std::shared_ptr<jobs::job_record>>& orphans) {
  admission_->begun(orphans.size());
  for (const auto& record : orphans) {
    admission_->ended(record->argument().size());
    record->fail({job_status::cancelled, {}, "the pool was closed before it started", {}, {}, 0});
  }
  counts_.count_orphans(orphans.size(), true);
}

bool Pool::body::end_job(schedule::job_id job, bool only_waiting, bool at_once) {
  auto prevented = std::make_shared<std::promise<bool>>();
  auto answer = prevented->get_future();
  {
    const std::lock_guard hold(mutex_);
    if (!engine_) return false;
    actors::tell(engine_->scheduler,
                 jobs::end_job{job, only_waiting, at_once, only_waiting ? prevented : nullptr});
  }
  if (!only_waiting) return true;
  return is_ready_within(answer, answer_deadline) && answer.get();
}

bool Pool::body::call_back(const std::function<void()>& callback) {
  return callbacks_.call(callback);
}

bool Pool::body::finish(nanoseconds at_most) {
  admission_->close({errc::stopped, "the pool is finishing and accepts no more jobs", 0});
  const auto bounded = std::clamp<nanoseconds>(at_most, nanoseconds(0), jobs::longest_wait);
  return counts_.wait_until_all_notified(bounded);
}

}  // namespace penstock
