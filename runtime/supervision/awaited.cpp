#include "runtime/supervision/awaited.hpp"

#include "runtime/base/batch_work.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/death_words.hpp"
#include "runtime/base/job_name.hpp"
#include "runtime/base/sample_name.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/work_kind.hpp"
#include "runtime/supervision/hang_history.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::supervision {
namespace {

using awaited_if_any = std::optional<awaited>;

std::string in_words(double seconds) {
  return duration_for_people(nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

std::string name_of(const worker_status& w) {
  return fmt::format("worker/{}", w.id);
}

std::string name_of(const batch_passage& b) {
  return fmt::format("batch {} of epoch {}", b.sequence, b.epoch);
}

std::string ending_of(const death_report& d) {
  if (d.signal) return *d.signal;
  return d.code ? fmt::format("exit {}", *d.code) : penstock::name_of(d.cause);
}

struct places_of_batches {
  std::uint32_t ready = 0;
  std::uint32_t taken = 0;
  std::uint32_t before = 0;                  // batches that have not reached the consumer, in any stage
  const batch_passage* delivered = nullptr;  // the first batch that is ready or taken
  const batch_passage* uploading = nullptr;  // the first batch that is being uploaded
  const batch_passage* loading = nullptr;    // the first batch that is not loaded, even if later ones are
};

places_of_batches look_at(const std::vector<batch_passage>& under_way) {
  places_of_batches found;
  for (const batch_passage& b : under_way) {
    switch (b.reached()) {
      case batch_stage::leased:
      case batch_stage::begun:
        if (found.loading == nullptr) found.loading = &b;
        break;
      case batch_stage::loaded: break;
      case batch_stage::ordered:
      case batch_stage::submitted:
      case batch_stage::copied:
        if (found.uploading == nullptr) found.uploading = &b;
        break;
      case batch_stage::ready:
      case batch_stage::taken:
        if (found.delivered == nullptr) found.delivered = &b;
        ++(b.reached() == batch_stage::ready ? found.ready : found.taken);
        break;
      case batch_stage::released: continue;
    }
    found.before += b.reached() < batch_stage::taken ? 1 : 0;
  }
  return found;
}

bool is_over(const session_status& s) {
  return s.outcome != run_outcome::running || s.state == session_state::stopping;
}

bool is_suspended(const progress_facts& f, const worker_status& w) {
  const auto where = f.standing.find(w.id);
  return where != f.standing.end() && where->second == suspended_channel;
}

/// " (it computes)"; empty: unknown.
std::string where_it_stands(const progress_facts& f, const worker_status& w) {
  const auto where = f.standing.find(w.id);
  return where == f.standing.end() || where->second.empty() ? ""
         : where->second == "running"                       ? " (it computes)"
         : where->second == suspended_channel               ? " (its process is suspended)"
                                                            : fmt::format(" (it waits in {})", where->second);
}

/// The sample, job or batch that the worker is working on: "sample 'tom.jpg' for 7.2 s (it computes)".
std::string sample_of(const progress_facts& f, const worker_status& w) {
  const work_kind kind = kind_of_work(f.status.jobs);
  const std::string name(work_for_people(w.current_sample.value_or(""), kind));
  const std::string time = in_words((kind == work_kind::batches ? w.current_work_seconds : std::nullopt).value_or(w.current_sample_seconds.value_or(0)));
  if (kind == work_kind::batches && !w.current_work_seconds) return batch_work_since(name, time) + where_it_stands(f, w);
  return fmt::format("{} for {}{}", kind == work_kind::samples ? sample_for_people(name) : kind == work_kind::jobs ? fmt::format("'{}'", name) : name, time, where_it_stands(f, w));
}

awaited_if_any group_of(const progress_facts& f) {
  if (!f.status.group || f.status.group->waits_for.empty()) return std::nullopt;
  return awaited{stall_kind::group,
                 fmt::format("the group '{}': {}", f.status.group->group, f.status.group->waits_for)};
}

std::string owner_in_words(const progress_facts& f) {
  if (!f.owner_is_elsewhere || !f.status.gpu_pid) return "the GPU owner";
  return fmt::format("the GPU owner (pid {})", *f.status.gpu_pid);
}

awaited_if_any consumer_of(const progress_facts& f, const places_of_batches& batches) {
  if (f.owner_is_elsewhere) {
    if (batches.delivered == nullptr || f.status.gpu_state != child_state::ready) return std::nullopt;
    return awaited{stall_kind::consumer, fmt::format("the consumer, which is the sink of {} and has {}",
                                                     owner_in_words(f), name_of(*batches.delivered))};
  }
  if (batches.ready > 0 && !f.consumer_waits) {
    return awaited{stall_kind::consumer,
                   fmt::format("the consumer, which has {} batch{} to take but asks for none", batches.ready,
                               batches.ready == 1 ? "" : "es")};
  }
  if (f.buffers > 0 && batches.taken >= f.buffers) {
    return awaited{
        stall_kind::consumer,
        fmt::format("the consumer, which holds {} of {} device buffers{}", batches.taken, f.buffers,
                    f.consumer_waits ? " but asks for another batch: it must release one first" : "")};
  }
  return std::nullopt;
}

/// A suspended owner can neither copy nor run its sink.
awaited_if_any frozen_owner_of(const progress_facts& f) {
  if (!f.owner_is_frozen) return std::nullopt;
  return awaited{.kind = stall_kind::gpu_owner, .text = owner_in_words(f) + ", whose process is suspended", .suspended = true};
}

awaited_if_any owner_of(const progress_facts& f, const places_of_batches& batches) {
  const child_state state = f.status.gpu_state;
  if (state == child_state::starting) {
    return awaited{stall_kind::gpu_owner,
                   "the GPU owner, which is starting",
                   {},
                   start_patience(f.owner_start_deadline)};
  }
  if (state != child_state::ready) return awaited{stall_kind::gpu_owner, fmt::format("the GPU owner, which is {}", name_of(state))};
  if (batches.uploading == nullptr) return std::nullopt;
  return awaited{stall_kind::gpu_owner,
                 fmt::format("{}, which has {} to copy", owner_in_words(f), name_of(*batches.uploading))};
}

/// If the worker's current work has hung before, adds this to the text.
awaited with_history(awaited found, const progress_facts& f, const worker_status& w) {
  const hung_work* const hung = earlier_hangs(f.status, w);
  if (hung == nullptr) return found;
  found.hung_before = static_cast<std::uint32_t>(hung->hangs.size());
  found.text += fmt::format("; it hung before, {}", hangs_and_way_out(*hung, kind_of_work(f.status.jobs)));
  return found;
}

/// What the stream waits for if the first batch that is not loaded has a worker.
awaited_if_any loading_of(const progress_facts& f, const places_of_batches& batches) {
  if (batches.loading == nullptr) return std::nullopt;
  const batch_passage& b = *batches.loading;
  const auto w = std::ranges::find(f.status.workers, b.worker, &worker_status::id);
  // If the worker has died, the batch waits for a new lease, and not for the worker.
  if (w == f.status.workers.end() || w->incarnation != b.incarnation || !w->pid) return std::nullopt;
  if (w->current_sample) {
    const std::string text = fmt::format("{}, which has been loading {}, in {}", name_of(*w), sample_of(f, *w), name_of(b));
    return with_history({stall_kind::sample, text, w->id}, f, *w);
  }
  if (is_suspended(f, *w)) {
    std::string text = fmt::format("{}, which has {}, but whose process (pid {}) is suspended", name_of(*w), name_of(b), *w->pid);
    return awaited{.kind = stall_kind::worker, .text = std::move(text), .worker = w->id, .suspended = true};
  }
  const std::string how = w->state == child_state::ready ? "is not working on a sample" : fmt::format("is {}", name_of(w->state));
  return awaited{stall_kind::worker, fmt::format("{}, which has {} and {}", name_of(*w), name_of(b), how),
                 w->id};
}

awaited_if_any probation_of(const progress_facts& f) {
  const auto w = std::ranges::find(f.status.workers, f.sacrificial_place, &worker_status::id);
  if (w == f.status.workers.end() || w->state == child_state::stopped || w->state == child_state::failed) return std::nullopt;
  const std::string how =
      w->current_sample && !f.status.jobs ? "has been loading " + sample_of(f, *w) : fmt::format("is {}", name_of(w->state));
  return awaited{stall_kind::probation,
                 fmt::format("a {} that may kill workers and must be tried alone in {}, which {}",
                             words_for(kind_of_work(f.status.jobs)).item, name_of(*w), how),
                 w->id, w->state == child_state::starting ? start_patience(f.worker_start_deadline) : nanoseconds(0)};
}

/// A worker that was suspended before it could begin what it was sent.
awaited_if_any suspended_of(const progress_facts& f) {
  for (const worker_status& w : f.status.workers) {
    if (!w.pid || w.current_sample || !f.leases.contains(w.id) || !is_suspended(f, w)) continue;
    const std::string item = words_for(kind_of_work(f.status.jobs)).item;
    std::string text = fmt::format("{}, which has not begun the {} that it was sent, because its process (pid {}) is suspended", name_of(w), item, *w.pid);
    return awaited{.kind = stall_kind::worker, .text = std::move(text), .worker = w.id, .suspended = true};
  }
  return std::nullopt;
}

/// What the stream waits for if no worker holds the missing batch.
awaited workers_of(const progress_facts& f) {
  const worker_status* starting = nullptr;
  const worker_status* waiting = nullptr;
  const worker_status* other = nullptr;
  std::uint32_t drained = 0;
  std::string gone;
  for (const worker_status& w : f.status.workers) {
    if (w.id == f.sacrificial_place) continue;
    if (w.state == child_state::starting) {
      if (starting == nullptr) starting = &w;
    } else if (w.state == child_state::backoff) {
      if (waiting == nullptr ||
          w.next_restart_seconds.value_or(0) < waiting->next_restart_seconds.value_or(0))
        waiting = &w;
    } else if (w.state == child_state::failed || w.state == child_state::unkillable || w.why_stopped == vacancy::not_restarted) {
      gone += fmt::format("{}{} is {}", gone.empty() ? "" : ", ", name_of(w),
                          w.why_stopped == vacancy::none ? name_of(w.state) : name_of(w.why_stopped));
    } else if (w.why_stopped == vacancy::drained) {
      ++drained;
    } else if (w.state != child_state::stopped && (other == nullptr || !f.leases.contains(other->id))) {
      other = &w;
    }
  }
  if (other != nullptr && other->state != child_state::ready)
    return {stall_kind::worker, fmt::format("{}, which is {}", name_of(*other), name_of(other->state)), other->id};
  if (other != nullptr && f.leases.contains(other->id)) {
    const std::string item = words_for(kind_of_work(f.status.jobs)).item;
    return {stall_kind::worker, fmt::format("{}, which has not begun the {} that it was sent", name_of(*other), item), other->id};
  }
  if (other != nullptr) {
    constexpr const char* why_none[] = {"", ": callers may keep results in all of its slots", ": the program may keep batches in all of its slots"};
    return {stall_kind::worker,
            fmt::format("{}, which is ready but has no lease{}", name_of(*other), why_none[static_cast<std::size_t>(kind_of_work(f.status.jobs))]),
            other->id};
  }
  if (starting != nullptr)
    return {stall_kind::worker, fmt::format("{}, which is starting", name_of(*starting)), starting->id,
            start_patience(f.worker_start_deadline)};
  if (waiting != nullptr) {
    return {stall_kind::worker,
            fmt::format("{}, which restarts in {}{}", name_of(*waiting),
                        in_words(waiting->next_restart_seconds.value_or(0)),
                        waiting->last_death ? " after " + ending_of(*waiting->last_death) : ""),
            waiting->id};
  }
  if (drained > 0) {
    return {stall_kind::operator_,
            fmt::format("an operator, who drained all workers{}; `penstock restart workers` brings them back",
                        gone.empty() ? "" : " that were left (" + gone + ")")};
  }
  return {stall_kind::nobody,
          gone.empty() ? "a worker, but there is none" : "a worker, but none is left (" + gone + ")"};
}

awaited end_of_pause(const progress_facts& f) {
  const pauser by = f.paused_by.value_or(pauser::operator_);
  const std::string who = by == pauser::operator_ ? "an operator, who" : fmt::format("{}, which", words_of(by));
  return {stall_kind::operator_, fmt::format("{} paused the {}; `penstock resume` ends the pause", who, words_for(kind_of_work(f.status.jobs)).run)};
}

bool runs(const worker_status& w, std::uint64_t job) {
  const auto now = w.current_sample ? job_named(*w.current_sample) : std::nullopt;
  return now && now->job == job;
}

/// "which has been loading sample 1237 for 106 s (it waits in hrtimer_nanosleep)"
std::string work_on(const progress_facts& f, const worker_status& w, const awaited_batch& batch) {
  double seconds = w.current_work_seconds.value_or(w.current_sample_seconds.value_or(0));
  if (batch.since) seconds = std::min(seconds, std::chrono::duration<double>(f.now - *batch.since).count());
  const std::string how = fmt::format("for {}{}", in_words(seconds), where_it_stands(f, w));
  switch (batch.doing.step) {
    case batch_step::setup: return fmt::format("which has been setting up the dataset {}", how);
    case batch_step::sample: return fmt::format("which has been loading {} {}", batch.doing.sample, how);
    case batch_step::collation: return fmt::format("which has been collating the next batch {}", how);
    case batch_step::unknown: break;
  }
  const std::string work(work_for_people(w.current_sample.value_or(""), work_kind::batches));
  return fmt::format("which has been loading {} {}", work.starts_with("sample ") || work.starts_with("batch ") ? work : "the next batch", how);
}

/// The batch that a data loader's consumer waits for.
awaited batch_of_loader(const progress_facts& f, const awaited_batch& batch) {
  const worker_status* busiest = nullptr;
  for (const worker_status& w : f.status.workers) {
    if (!w.current_sample) continue;
    if (runs(w, batch.job)) {
      const bool sets_up = batch.doing.step == batch_step::setup;
      return with_history({stall_kind::sample, fmt::format("{}, {}", name_of(w), work_on(f, w, batch)), w.id,
                           sets_up ? start_patience(f.worker_start_deadline) : nanoseconds(0), batch.doing.sample},
                          f, w);
    }
    if (busiest == nullptr || w.current_sample_seconds.value_or(0) > busiest->current_sample_seconds.value_or(0)) busiest = &w;
  }
  if (f.status.state == session_state::paused) return end_of_pause(f);
  if (auto r = probation_of(f)) return *r;
  if (auto r = suspended_of(f)) return *r;
  if (busiest == nullptr) return workers_of(f);
  return {stall_kind::worker,
          fmt::format("a worker that is free for the next batch: {} has been {}", name_of(*busiest), doing_in_words(sample_of(f, *busiest))),
          busiest->id};
}

/// A running job may take as long as it needs. So progress is expected only while no job runs and jobs wait,
/// or callers wait to submit.
bool are_jobs_owed(const pool_statistics& jobs) {
  return (jobs.waiting > 0 || jobs.callers_wait) && jobs.running + jobs.handed == 0;
}

awaited workers_or_callers_of(const progress_facts& f, const pool_statistics& jobs) {
  if (f.batch) return batch_of_loader(f, *f.batch);
  if (jobs.of_batches && !jobs.callers_wait) return {stall_kind::consumer, "the consumer, which asks for no batch"};
  if (const std::uint64_t begun = jobs.running + jobs.handed; begun > 0) {
    return {stall_kind::sample, jobs.of_batches ? counted(begun, "batch that is loading", "batches that are loading") : counted(begun, "running job")};
  }
  if (jobs.callers_hold_everything) {
    return {stall_kind::consumer,
            fmt::format("{}: {} of {} ([jobs] memory) are kept, which leaves no room for the next {}",
                        jobs.of_batches ? "the program to drop batches" : "callers to free results", bytes_for_people(jobs.result_bytes),
                        bytes_for_people(jobs.memory_bytes), words_for(kind_of_work(f.status.jobs)).item)};
  }
  if (jobs.waiting == 0) return {stall_kind::consumer, "jobs to be submitted"};
  if (f.status.state == session_state::paused) return end_of_pause(f);
  if (auto r = probation_of(f)) return *r;
  return workers_of(f);
}

}  // namespace

nanoseconds start_patience(nanoseconds deadline) noexcept {
  using namespace std::chrono_literals;
  return std::min<nanoseconds>(deadline, std::clamp<nanoseconds>(deadline / 4, 15s, 60s));
}

bool is_owed(const progress_facts& f) {
  if (is_over(f.status)) return false;
  if (f.status.jobs) return f.batch || (are_jobs_owed(*f.status.jobs) && (!f.status.jobs->of_batches || f.status.jobs->callers_wait));
  return f.consumer_waits || f.owner_is_elsewhere || look_at(f.under_way).before > 0;
}

/// Checks the stages nearest to the consumer first, because a batch that is stuck there
/// blocks all earlier stages.
awaited find_blocker(const progress_facts& f) {
  const places_of_batches batches = look_at(f.under_way);
  if (is_over(f.status)) return {stall_kind::nobody, "nothing: the stream is over", {}};
  if (f.status.jobs) return workers_or_callers_of(f, *f.status.jobs);
  if (!is_owed(f)) return {stall_kind::consumer, "the consumer, which asks for no batch", {}};
  if (auto r = group_of(f)) return *r;
  if (auto r = frozen_owner_of(f)) return *r;
  if (auto r = consumer_of(f, batches)) return *r;
  if (auto r = owner_of(f, batches)) return *r;
  if (f.status.state == session_state::paused) return end_of_pause(f);
  if (auto r = loading_of(f, batches)) return *r;
  if (auto r = probation_of(f)) return *r;
  return workers_of(f);
}

}  // namespace penstock::supervision
