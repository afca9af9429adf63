// The board's readings: status, report, metrics, limits.
#include "actors/host/board.hpp"

namespace penstock::host {
namespace {

constexpr double eta_max_seconds = 365 * 86'400.0;  // no ETA beyond this, as in `penstock headroom`

double seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

telemetry::limit_reading board::limits() const {
  const std::lock_guard hold(mutex_);
  return limits_;
}

std::optional<steady_time> board::waits_since() const {
  const std::lock_guard hold(mutex_);
  return waits_.since();
}

std::optional<pauser> board::paused_by() const {
  const std::lock_guard hold(mutex_);
  return paused_by_;
}

steady_time board::begun_at() const {
  const std::lock_guard hold(mutex_);
  return begun_.value_or(never);
}

bool board::is_pinned() const {
  const std::lock_guard hold(mutex_);
  return report_.pinned || report_.uploads == 0;
}

session_status board::status() const {
  const std::lock_guard hold(mutex_);
  session_status now = status_;
  now.state = report_.outcome == run_outcome::failed ? session_state::failed
              : stopping_                            ? session_state::stopping
              : paused_by_                           ? session_state::paused
              : degraded_                            ? session_state::degraded
                                                     : session_state::ok;
  now.outcome = report_.outcome;
  if (report_.outcome == run_outcome::failed && report_.error) now.failure = report_.error->message;
  if (begun_) now.uptime_seconds = seconds(ended_.value_or(std::chrono::steady_clock::now()) - *begun_);
  if (is_moving()) now.rate = rates_.delivered;
  if (now.rate.value_or(0) > 0 && now.samples_expected > now.samples_done)
    now.eta_seconds = static_cast<double>(now.samples_expected - now.samples_done) / *now.rate;
  if (now.rate.value_or(0) > 0 && now.batches_expected > now.batches_done)  // set for data loaders only, whose rate counts batches
    now.eta_seconds = static_cast<double>(now.batches_expected - now.batches_done) / *now.rate;
  if (now.eta_seconds > eta_max_seconds) now.eta_seconds.reset();
  return now;
}

session_status board::status_before_end() const {
  session_status known = status();
  const std::lock_guard hold(mutex_);
  if (!known.stalled) known.stalled = stalled_at_end_;
  return known;
}

std::map<std::uint32_t, double> board::worker_rates() const {
  const std::lock_guard hold(mutex_);
  return is_moving() ? rates_.loaded : std::map<std::uint32_t, double>();
}

double board::waited_seconds(steady_time now) const {
  const std::lock_guard hold(mutex_);
  return seconds(waits_.until(now));
}

telemetry::metrics_facts board::metrics(steady_time now) const {
  telemetry::metrics_facts facts;
  facts.status = status();
  facts.totals = report({}, now);
  facts.limits = limits();
  const std::lock_guard hold(mutex_);
  facts.deaths = deaths_;
  facts.owner_deaths = owner_deaths_;
  return facts;
}

run_report board::report(const std::vector<schedule::epoch_account>& accounts, steady_time now) const {
  const std::lock_guard hold(mutex_);
  run_report r = report_;
  r.device_waited_seconds = seconds(waits_.until(now));
  if (begun_) {
    r.seconds = seconds(ended_.value_or(now) - *begun_);
    if (first_batch_) r.first_batch_seconds = seconds(*first_batch_ - *begun_);
  }
  for (const schedule::epoch_account& a : accounts) {
    r.epochs.push_back(a);
    r.epochs.back().seconds = seconds(a.took);
  }
  return r;
}

}  // namespace penstock::host
