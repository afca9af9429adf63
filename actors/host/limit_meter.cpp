#include "actors/host/limit_meter.hpp"

#include "actors/host/pipeline_view.hpp"
#include "actors/supervisor/death_record.hpp"
#include "runtime/base/batch_work.hpp"
#include "runtime/base/memory_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::host {
namespace {

constexpr std::size_t passages_per_look = 4096;  // all that batch_times keeps

const worker_status* worker_of(const session_status& status, std::uint32_t id) {
  const auto found = std::ranges::find(status.workers, id, &worker_status::id);
  return found == status.workers.end() ? nullptr : &*found;
}

nanoseconds duration_of(double seconds) {
  return nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::optional<telemetry::limit_context::long_load> longest_load(const session_status& status) {
  constexpr double long_from = 1;
  std::optional<telemetry::limit_context::long_load> longest;
  if (kind_of_work(status.jobs) != work_kind::batches) return longest;
  for (const worker_status& w : status.workers) {
    if (!w.current_sample || w.current_work_seconds.value_or(0) < std::max(long_from, longest ? longest->seconds : 0)) continue;
    const std::string name(work_for_people(*w.current_sample, work_kind::batches));
    if (sample_in_work(name)) longest = {w.id, name, *w.current_work_seconds};
  }
  return longest;
}

/// Whether every worker that should be there was drained. At the end of a session others are gone, too.
bool are_drained(const session_status& status) {
  if (status.state == session_state::stopping || status.outcome != run_outcome::running) return false;
  const auto wanted = std::ranges::count_if(
      status.workers, [](const worker_status& w) { return w.why_stopped != vacancy::not_needed && w.why_stopped != vacancy::scaled_down; });
  return wanted > 0 && workers_drained(status) == static_cast<std::size_t>(wanted);
}

}  // namespace

telemetry::limit_context context_of(const session_status& status, const telemetry::limit_reading& reading) {
  telemetry::limit_context context;
  context.restarts = status.worker_restarts;
  context.on_host = status.gpu.kind == "host";
  context.hedges = status.hedges;
  context.slots_per_worker = status.slots_per_worker;
  context.hosts = static_cast<std::uint32_t>(status.hosts.size());
  for (const host_status& one : status.hosts) context.remote_resting += one.workers_offered - std::min(one.workers_offered, one.workers_wanted);
  context.owner_pid = status.gpu_pid;
  context.stalled = status.stalled;
  if (const auto& stall = status.stalled) {
    const worker_status* const w = stall->worker ? worker_of(status, *stall->worker) : nullptr;
    if (w != nullptr) context.stalled_pid = w->pid;
    if (w != nullptr && w->current_limit_seconds) context.stalled_limit = duration_of(*w->current_limit_seconds);
    if (stall->kind == stall_kind::gpu_owner) context.stalled_pid = status.gpu_pid;
  }
  context.waits_for_hosts = status.waits_for_hosts;
  context.longest = longest_load(status);
  context.drained = are_drained(status);
  for (const worker_status& w : status.workers) {
    if (w.current_sample) context.loading[w.id] = *w.current_sample;
    if (w.over_memory) context.over_memory.push_back(fmt::format("worker/{} {}.", w.id, excess_in_words(*w.over_memory, kind_of_work(status.jobs))));
  }
  const worker_status* const dead = reading.lost ? worker_of(status, reading.lost->worker) : nullptr;
  if (dead != nullptr && dead->last_death) context.lost_worker_end = supervisor::end_text(*dead->last_death);
  return context;
}

telemetry::limit_reading limit_meter::look(supervision::progress_facts run, const batch_times* times,
                                           const std::vector<worker_look>& workers,
                                           std::optional<steady_time> waits_since, nanoseconds waited, steady_time begun,
                                           steady_time now) {
  telemetry::limit_facts facts;
  facts.waits_since = waits_since;
  facts.begun = begun;
  facts.slots_per_worker = std::max(run.status.slots_per_worker, 1U);  // 0: not known yet
  facts.device_ready = run.status.gpu_state == child_state::ready;
  facts.owner_is_elsewhere = run.owner_is_elsewhere;
  facts.owner_is_frozen = run.owner_is_frozen;
  facts.owner_deaths = run.status.owners_ended_unexpectedly;
  facts.is_paused = run.status.state == session_state::paused;
  facts.seeks = run.seeks;
  facts.is_over = run.status.outcome != run_outcome::running || run.status.state == session_state::stopping;
  facts.workers = workers;
  if (const worker_status* const alone = worker_of(run.status, run.sacrificial_place)) {
    worker_look& seen = facts.sacrificial.emplace();
    seen.id = alone->id;
    seen.incarnation = alone->incarnation;
    seen.ready = alone->state == child_state::ready || alone->state == child_state::draining;
    seen.sample_for = nanoseconds(static_cast<std::int64_t>(alone->current_sample_seconds.value_or(0) * 1e9));
  }
  if (const auto& jobs = run.status.jobs) {
    facts.jobs = {jobs->waiting - jobs->handed, jobs->handed + jobs->running, jobs->callers_wait, jobs->callers_hold_everything};
    facts.jobs->any_ended = jobs->ok + jobs->failed + jobs->cancelled > 0;
    if (jobs->of_batches) facts.jobs->consumer_waited = waited;
    facts.jobs->slow_loads = std::move(run.slow_loads);
    facts.jobs->lost_waits = std::move(run.lost_waits);
  } else if (times != nullptr) {
    // Read the released ones last: a batch that was in flight a moment ago may be among them.
    facts.passages = std::move(run.under_way);
    const auto released = times->released_after(released_, passages_per_look);
    if (!released.empty()) released_ = released.back().number;
    std::ranges::copy(released, std::back_inserter(facts.passages));
  }
  return limits_.look(now, facts);
}

}  // namespace penstock::host
