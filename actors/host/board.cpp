#include "actors/host/board.hpp"

#include "runtime/base/death_words.hpp"
#include "runtime/supervision/hang_history.hpp"

#include <unistd.h>

#include <algorithm>

namespace penstock::host {
namespace {

constexpr std::size_t deaths_kept = 1000;
constexpr std::size_t failures_kept = 10'000;
constexpr std::size_t exceptions_kept = 1000;  // failures beyond these are kept without their exception
constexpr std::size_t lost_processes_kept = 64;
constexpr std::size_t quarantined_kept = 1000;  // needed for data loaders, which set no limit of their own

std::optional<std::string> if_any(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace

board::board(std::string name, std::string placement) {
  status_.session = name;
  status_.pid = ::getpid();
  report_.placement = placement;
  status_.gpu_placement = std::move(placement);
  status_.gpu_pid = ::getpid();
  report_.session = std::move(name);
}

void board::is_rank_of(const sampler_config& sampler) {
  const std::lock_guard hold(mutex_);
  report_.rank = sampler.rank.value_or(0);
  report_.world_size = sampler.world_size;
}

void board::device_opened(const device::identity& what) {
  const std::lock_guard hold(mutex_);
  status_.gpu = {what.kind, what.name, what.uuid};
  report_.device = status_.gpu;
  status_.gpu_state = child_state::ready;
}

void board::device_failed() {
  const std::lock_guard hold(mutex_);
  status_.gpu_state = child_state::failed;
}

void board::owner_changed(child_state state, std::optional<std::int32_t> pid, std::uint32_t restarts) {
  const std::lock_guard hold(mutex_);
  status_.gpu_state = state;
  status_.gpu_pid = pid;
  status_.gpu_restarts = restarts;
  if (state != child_state::ready) status_.gpu_processes.reset();
  report_.owner_restarts = restarts;
}

void board::gpu_processes_seen(std::vector<gpu_process> processes) {
  const std::lock_guard hold(mutex_);
  status_.gpu_processes = std::move(processes);
}

void board::owner_died(const owner_death_report& death) {
  const std::lock_guard hold(mutex_);
  if (report_.owner_deaths.size() >= deaths_kept) report_.owner_deaths.erase(report_.owner_deaths.begin());
  report_.owner_deaths.push_back(death);
  if (!ended_on_request(death)) ++owner_deaths_.at(static_cast<std::size_t>(death.cause));
  if (is_unexpected(death.cause)) ++status_.owners_ended_unexpectedly;
  report_.owners_ended_unexpectedly = status_.owners_ended_unexpectedly;
  status_.last_owner_death = death;
}

void board::owner_recovered(std::uint32_t incarnation, double seconds_since_its_end) {
  const std::lock_guard hold(mutex_);
  for (owner_death_report& d : report_.owner_deaths) {
    if (d.incarnation == incarnation) d.recovered_seconds = seconds_since_its_end;
  }
  if (status_.last_owner_death && status_.last_owner_death->incarnation == incarnation)
    status_.last_owner_death->recovered_seconds = seconds_since_its_end;
}

void board::workers_changed(const std::vector<worker_status>& workers, bool degraded, std::uint32_t started, std::uint32_t restarts) {
  const std::lock_guard hold(mutex_);
  status_.workers = workers;
  degraded_ = degraded;
  report_.workers_started = started;
  report_.restarts = restarts;
  status_.worker_restarts = restarts;
}

death_report board::worker_died(death_report death, work_kind kind) {
  const std::lock_guard hold(mutex_);
  supervision::note_hang(status_.hung, death, kind);
  if (death.cause != death_cause::stopped) {
    status_.deaths_cost.repeated += death.held - std::min(death.held_again, death.held);
    status_.deaths_cost.repetitions += death.held;
  }
  if (report_.deaths.size() >= deaths_kept) report_.deaths.erase(report_.deaths.begin());
  report_.deaths.push_back(death);
  if (!ended_on_request(death)) ++deaths_.at(static_cast<std::size_t>(death.cause));
  if (is_unexpected(death.cause)) ++status_.workers_ended_unexpectedly;
  report_.workers_ended_unexpectedly = status_.workers_ended_unexpectedly;
  return death;
}

void board::group_changed(const group_status& now) {
  const std::lock_guard hold(mutex_);
  status_.group = now;
  status_.group->lost = lost_processes_;
  report_.group = status_.group;
}

void board::processes_lost(const std::vector<lost_process_report>& lost) {
  const std::lock_guard hold(mutex_);
  lost_processes_.insert(lost_processes_.end(), lost.begin(), lost.end());
  if (lost_processes_.size() > lost_processes_kept)
    lost_processes_.erase(lost_processes_.begin(), lost_processes_.end() - static_cast<std::ptrdiff_t>(lost_processes_kept));
  for (std::optional<group_status>* const group : {&status_.group, &report_.group}) {
    if (*group) (*group)->lost = lost_processes_;
  }
}

void board::sample_failed(const scheduler::lost_sample& lost, std::shared_ptr<const raised_exception> exception) {
  const std::lock_guard hold(mutex_);
  ++status_.failed;
  failure_report failed{lost.sample, if_any(lost.name), lost.reason, std::move(exception)};
  status_.last_failure = failed;
  if (report_.failures.size() >= exceptions_kept) failed.exception.reset();
  if (report_.failures.size() < failures_kept) report_.failures.push_back(std::move(failed));
}

void board::sample_quarantined(const scheduler::lost_sample& lost) {
  const std::lock_guard hold(mutex_);
  report_.quarantine.push_back({lost.sample, if_any(lost.name), lost.attempts, lost.causes, false, false});
  released_.erase(lost.sample);
}

void board::loader_quarantined(const scheduler::lost_sample& lost, bool known) {
  const std::lock_guard hold(mutex_);
  status_.quarantined += known ? 0 : 1;
  if (report_.quarantine.size() < quarantined_kept)
    report_.quarantine.push_back({lost.sample, if_any(lost.name), lost.attempts, lost.causes, known, false});
}

void board::quarantine_known(const std::vector<quarantine_report>& known) {
  const std::lock_guard hold(mutex_);
  report_.quarantine.insert(report_.quarantine.end(), known.begin(), known.end());
}

quarantine_standing board::lift_quarantine(std::uint64_t sample, bool for_good) {
  const std::lock_guard hold(mutex_);
  if (released_.contains(sample)) return quarantine_standing::none;
  auto was = quarantine_standing::none;
  for (quarantine_report& q : report_.quarantine) {
    if (q.sample != sample) continue;
    if (was != quarantine_standing::in_force)
      was = q.lifted ? quarantine_standing::lifted : quarantine_standing::in_force;
    q.lifted = true;
  }
  if (for_good && was != quarantine_standing::none) released_.insert(sample);
  return was;
}

void board::uploaded(std::uint64_t uploads, std::uint64_t bytes, bool pinned) {
  const std::lock_guard hold(mutex_);
  report_.uploads += uploads;
  report_.bytes += bytes;
  report_.pinned = pinned;
  status_.bytes_uploaded = report_.bytes;
}

void board::delivered(const schedule::delivery& batch, std::uint64_t epoch) {
  const std::lock_guard hold(mutex_);
  status_.epoch = epoch;
  ++status_.batches_delivered;
  status_.samples_delivered += batch.delivered;
  status_.samples_done += batch.delivered + batch.failed + batch.quarantined;
  ++report_.batches;
  report_.samples += batch.delivered;
}

void board::counted(std::uint64_t stale_dropped, std::optional<std::uint64_t> quarantined, const hedge_counts& hedges) {
  const std::lock_guard hold(mutex_);
  report_.stale_dropped = stale_dropped;
  if (quarantined) status_.quarantined = *quarantined;
  report_.hedges = hedges;
  status_.hedges = hedges;
}

void board::configured(std::uint32_t workers) {
  const std::lock_guard hold(mutex_);
  report_.workers_configured = workers;
}

void board::planned(std::uint64_t samples_before, std::uint64_t samples_expected, std::uint32_t slots) {
  const std::lock_guard hold(mutex_);
  status_.samples_before = samples_before;
  status_.samples_expected = samples_expected;
  status_.slots_per_worker = slots;
}

void board::dataset_has(std::uint64_t samples) {
  const std::lock_guard hold(mutex_);
  status_.dataset_samples = samples;
}

void board::has_slots(std::uint32_t of_a_worker) {
  const std::lock_guard hold(mutex_);
  status_.slots_per_worker = of_a_worker;
}

void board::begun(steady_time now) {
  const std::lock_guard hold(mutex_);
  if (begun_) return;
  begun_ = now;
  status_.started = std::chrono::system_clock::now();
}

void board::batch_taken(steady_time taken) {
  const std::lock_guard hold(mutex_);
  if (!first_batch_) first_batch_ = taken;
}

void board::loader_pass(std::uint64_t epoch, std::uint64_t done, std::uint64_t expected) {
  const std::lock_guard hold(mutex_);
  status_.epoch = epoch;
  status_.batches_done = done;
  status_.batches_expected = expected;
}

void board::batch_repeated(bool lost_before) {
  const std::lock_guard hold(mutex_);
  status_.deaths_cost.repeated += lost_before ? 0 : 1;
  ++status_.deaths_cost.repetitions;
}

void board::batch_lost(std::uint64_t samples) {
  const std::lock_guard hold(mutex_);
  status_.deaths_cost.lost += samples;
}

void board::loader_batch_taken(std::uint64_t epoch, std::uint64_t samples, std::uint64_t left_out, steady_time taken) {
  const std::lock_guard hold(mutex_);
  status_.samples_done += left_out;
  if (samples == 0) return;
  if (!first_batch_) first_batch_ = taken;
  status_.epoch = epoch;
  ++status_.batches_delivered;
  ++status_.batches_done;
  ++report_.batches;
  for (std::uint64_t* const of : {&status_.samples_delivered, &status_.samples_done, &report_.samples}) *of += samples;
}

void board::waited(nanoseconds in_all, std::optional<steady_time> waits_at) {
  const std::lock_guard hold(mutex_);
  waits_.told(in_all, waits_at);
}

void board::wait_begins(steady_time now) {
  const std::lock_guard hold(mutex_);
  waits_.begin(now);
}

void board::wait_ends(steady_time now) {
  const std::lock_guard hold(mutex_);
  waits_.end(now);
}

void board::looked(steady_time now, nanoseconds suspended) {
  const std::lock_guard hold(mutex_);
  waits_.look(now, suspended);
}

bool board::ended(run_outcome how, const std::optional<failure>& why, steady_time now) {
  const std::lock_guard hold(mutex_);
  if (report_.outcome == run_outcome::failed) return false;  // keep the first reason
  if (why) report_.error = why;
  ended_ = how == run_outcome::running ? std::nullopt : std::optional(now);
  return std::exchange(report_.outcome, how) != how;
}

bool board::ended_if_running(run_outcome how, steady_time now, const std::string& why_failed) {
  const std::lock_guard hold(mutex_);
  if (report_.outcome != run_outcome::running) return false;
  report_.outcome = why_failed.empty() ? how : run_outcome::failed;
  if (!why_failed.empty()) report_.error = failure{errc::sink, why_failed, 0};
  ended_ = now;
  return true;
}

bool board::paused(bool is_paused, pauser by, steady_time now) {
  const std::lock_guard hold(mutex_);
  if (is_paused == paused_by_.has_value()) return false;
  waits_.pause(is_paused, now);
  paused_by_ = is_paused ? std::optional(by) : std::nullopt;
  return true;
}

bool board::stopping() {
  const std::lock_guard hold(mutex_);
  return !std::exchange(stopping_, true);
}

void board::stalled(const std::optional<stall_report>& what) {
  const std::lock_guard hold(mutex_);
  const bool ends = stopping_ || report_.outcome != run_outcome::running;
  if (ends && !what && status_.stalled) stalled_at_end_ = status_.stalled;
  status_.stalled = what;
}

void board::measured(telemetry::rates_told rates) {
  const std::lock_guard hold(mutex_);
  rates_ = std::move(rates);
}

void board::limited(const telemetry::limit_reading& reading) {
  const std::lock_guard hold(mutex_);
  limits_ = reading;
  status_.deaths_cost.waited_seconds = reading.lost_seconds;
}

void board::read_from(std::string config_file) {
  const std::lock_guard hold(mutex_);
  status_.config_file = std::move(config_file);
}

}  // namespace penstock::host
