#include "runtime/supervision/pool.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <set>

namespace penstock::supervision {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t canary_pool_size = 4;
constexpr auto canary_window = 1s;

}  // namespace

std::string_view name_of(child_state state) noexcept {
  switch (state) {
    case child_state::stopped: return "stopped";
    case child_state::starting: return "starting";
    case child_state::ready: return "ready";
    case child_state::draining: return "draining";
    case child_state::backoff: return "backoff";
    case child_state::failed: return "failed";
    case child_state::unkillable: return "unkillable";
  }
  return "unknown";
}

pool::pool(const pool_settings& settings) : settings_(settings) {
  for (std::uint32_t w = 0; w < settings.workers; ++w) at(w).wanted = true;
}

pool::place& pool::at(std::uint32_t worker) {
  return places_.try_emplace(worker, restart_policy(settings_.restart, settings_.seed + worker))
      .first->second;
}

pool::place* pool::current(worker_ref who) {
  const auto it = places_.find(who.worker);
  if (it == places_.end() || it->second.incarnation != who.incarnation) return nullptr;
  const child_state s = it->second.state;
  const bool exists = s == child_state::starting || s == child_state::ready || s == child_state::draining ||
                      s == child_state::unkillable;
  return exists ? &it->second : nullptr;
}

void pool::open(steady_time now) {
  open_ = true;
  for (auto& [worker, p] : places_) {
    if (p.wanted && p.state == child_state::stopped) p.restart_at = now;
  }
}

void pool::close() {
  open_ = false;
}

void pool::child_ready(worker_ref who, steady_time now) {
  place* p = current(who);
  if (p == nullptr || p->state != child_state::starting) return;
  p->state = child_state::ready;
  p->policy.child_ready(now);
  if (canary_ == who.worker) end_canary();
}

void pool::child_died(worker_ref who, steady_time now, const death& d, const std::string& cause,
                      const std::string& last_words) {
  place* p = current(who);
  if (p == nullptr) return;
  death judged = d;
  if (p->operated) judged.ending = death::how::operated;
  p->operated = false;
  p->drain_sent = false;
  p->state = child_state::stopped;
  p->restart_at = never;
  const bool sacrificial = who.worker == settings_.sacrificial_place;
  if (judged.ending != death::how::operated) {
    last_trouble_ = fmt::format("worker {} ended with {}{}{}", who.worker, cause,
                                last_words.empty() ? "" : "; its last output:\n", last_words);
  }
  if (judged.counted() && !sacrificial) recent_counted_.emplace_back(now, who.worker);
  if (!p->wanted) {
    choose_canary();
    return;
  }

  const restart_decision next = p->policy.child_died(now, judged);
  switch (next.act) {
    case restart_decision::what::restart:
      p->state = child_state::backoff;
      p->restart_at = next.at;
      break;
    case restart_decision::what::stop: p->wanted = false; break;
    case restart_decision::what::fail:
      p->state = child_state::failed;
      p->wanted = false;
      if (judged.ending == death::how::no_restart) {
        fail({errc::worker_program,
              fmt::format("worker {} ended with {} and would do so again{}{}", who.worker, cause,
                          last_words.empty() ? "" : "; its last output:\n", last_words),
              0});
      }
      break;
  }
  if (canary_ && judged.counted() && canary_ != who.worker && !sacrificial) p->canary_waits = true;
  look_for_mass_death(now);
  choose_canary();
}

void pool::start_failed(worker_ref who, steady_time now, const failure& why) {
  place* p = current(who);
  if (p == nullptr) return;
  if (why.code == errc::worker_program) {
    // Missing or not executable: every place would say the same.
    p->state = child_state::failed;
    p->wanted = false;
    fail(why);
    return;
  }
  child_died(who, now, {death::how::abnormal, false, false}, why.message, "");
}

void pool::child_unkillable(worker_ref who) {
  if (place* p = current(who)) p->state = child_state::unkillable;
}

void pool::scale(std::uint32_t workers, steady_time now) {
  for (std::uint32_t w = 0; w < workers; ++w) {
    if (!at(w).wanted) invite(at(w), now);
  }
  for (auto& [worker, p] : places_) {
    if (worker >= workers && worker != settings_.sacrificial_place && p.wanted) dismiss(p);
  }
}

void pool::restart(std::uint32_t worker, steady_time now) {
  place& p = at(worker);
  if (p.state == child_state::starting || p.state == child_state::ready) {
    p.policy.forgive();
    p.wanted = true;
    p.operated = true;
    p.state = child_state::draining;
  } else {
    if (p.state == child_state::backoff) p.state = child_state::stopped;
    invite(p, now);
  }
}

void pool::drain(std::uint32_t worker) {
  dismiss(at(worker));
}

/// Nobody has to be here any more; whoever is may finish what it holds.
void pool::dismiss(place& p) {
  p.policy.forgive();
  p.wanted = false;
  p.dismissed = true;
  p.canary_waits = false;
  p.operated =
      p.state == child_state::starting || p.state == child_state::ready || p.state == child_state::draining;
  if (p.state == child_state::backoff) p.state = child_state::stopped;
}

/// Somebody has to be here again.
void pool::invite(place& p, steady_time now) {
  p.policy.forgive();
  p.wanted = true;
  p.dismissed = false;
  p.canary_waits = false;
  if (p.state != child_state::stopped && p.state != child_state::failed) return;
  p.state = child_state::stopped;
  p.restart_at = now;
}

void pool::want_sacrificial(bool wanted, steady_time now) {
  if (!wanted && !places_.contains(settings_.sacrificial_place)) return;
  place& p = at(settings_.sacrificial_place);
  if (wanted == p.wanted) return;
  if (wanted) {
    invite(p, now);
  } else {
    dismiss(p);
  }
}

void pool::recycle(worker_ref who) {
  place* p = current(who);
  if (p == nullptr || p->state != child_state::ready) return;
  p->operated = true;
  p->state = child_state::draining;
}

std::vector<pool_command> pool::advance(steady_time now) {
  for (auto& [worker, p] : places_) {
    const bool exists = p.state == child_state::starting || p.state == child_state::ready;
    if (exists && !p.wanted) p.state = child_state::draining;
    if (p.state == child_state::draining && !p.drain_sent) {
      p.drain_sent = true;
      outbox_.emplace_back(drain_child{{worker, p.incarnation}});
    }
  }
  if (open_ && !failed_) {
    start_due_places(now);
    check_minimum(now);
  }
  return std::exchange(outbox_, {});
}

void pool::start_due_places(steady_time now) {
  while (!recent_starts_.empty() && now - recent_starts_.front() >= 1s) recent_starts_.pop_front();
  for (auto& [worker, p] : places_) {
    const bool due = p.wanted && (p.state == child_state::stopped || p.state == child_state::backoff) &&
                     p.restart_at <= now && !p.canary_waits;
    if (!due) continue;
    const bool again = p.incarnation > 0;
    // The ceiling delays restarts; it never fails anything, and first starts are not restarts.
    if (again && recent_starts_.size() >= settings_.restarts_per_second_max) continue;
    if (again) {
      recent_starts_.push_back(now);
      ++p.restarts;
      // The sacrificial worker comes and goes with its need.
      if (worker != settings_.sacrificial_place) ++restarts_;
    }
    ++p.incarnation;
    ++started_;
    p.state = child_state::starting;
    p.restart_at = never;
    outbox_.emplace_back(start_child{{worker, p.incarnation}, worker == settings_.sacrificial_place});
  }
}

void pool::look_for_mass_death(steady_time now) {
  while (!recent_counted_.empty() && now - recent_counted_.front().first > canary_window)
    recent_counted_.pop_front();
  std::uint32_t loaders = 0;
  for (const auto& [worker, p] : places_)
    loaders += worker != settings_.sacrificial_place && p.wanted ? 1 : 0;
  std::set<std::uint32_t> died;  // one place that dies again and again is not half the pool
  for (const auto& [when, worker] : recent_counted_) died.insert(worker);
  if (loaders < canary_pool_size || canary_ || died.size() * 2 < loaders) return;
  // One event, not many: one place tries it for all.
  for (auto& [worker, p] : places_) {
    if (worker == settings_.sacrificial_place) continue;
    if (p.state == child_state::backoff) p.canary_waits = true;
    if (p.state == child_state::starting) canary_ = worker;  // it is trying already
  }
  recent_counted_.clear();
  choose_canary();
}

/// Whenever places wait for a canary there is one, and it may start.
void pool::choose_canary() {
  const auto can_try = [](const place& p) {
    return p.wanted && (p.state == child_state::backoff || p.state == child_state::starting);
  };
  if (canary_ && can_try(places_.at(*canary_))) return;
  canary_.reset();
  for (auto& [worker, p] : places_) {
    if (!p.canary_waits || !can_try(p)) continue;
    p.canary_waits = false;
    canary_ = worker;
    return;
  }
}

void pool::end_canary() {
  canary_.reset();
  for (auto& [worker, p] : places_) p.canary_waits = false;
}

void pool::check_minimum(steady_time now) {
  const std::uint32_t ready = loader_count(child_state::ready) + loader_count(child_state::draining);
  if (!any_hope()) {
    fail({errc::workers_exhausted,
          fmt::format("no loader worker is left, and by [loader.restart] none is started again{}{}",
                      last_trouble_.empty() ? "" : "; ", last_trouble_),
          0});
    return;
  }
  // Places that an operator has emptied are not missed.
  const std::uint32_t minimum = std::min(settings_.min_ready, loaders_asked_for());
  if (ready >= minimum) {
    below_minimum_since_.reset();
    return;
  }
  if (!below_minimum_since_) below_minimum_since_ = now;
  if (now - *below_minimum_since_ >= settings_.min_ready_within) {
    fail({errc::workers_exhausted,
          fmt::format("{} of at least {} loader workers were ready for {} s{}{}", ready, minimum,
                      std::chrono::duration_cast<std::chrono::seconds>(settings_.min_ready_within).count(),
                      last_trouble_.empty() ? "" : "; ", last_trouble_),
          0});
  }
}

bool pool::any_hope() const {
  bool missed = false;
  for (const auto& [worker, p] : places_) {
    if (worker == settings_.sacrificial_place) continue;
    const bool gone_for_good = p.state == child_state::failed || p.state == child_state::unkillable;
    if (!gone_for_good && (p.wanted || p.state != child_state::stopped)) return true;
    missed |= gone_for_good || !p.dismissed;
  }
  return !missed;  // all drained by an operator is his business, not a failure
}

void pool::fail(failure reason) {
  if (failed_) return;
  failed_ = true;
  outbox_.emplace_back(pool_failed{std::move(reason)});
}

steady_time pool::next_deadline() const {
  if (!open_ || failed_) return never;
  steady_time next = never;
  for (const auto& [worker, p] : places_) {
    if (p.wanted && !p.canary_waits) next = std::min(next, p.restart_at);
  }
  // Whoever is due and was held back by the ceiling is due again when a second has passed.
  if (next != never && !recent_starts_.empty() &&
      recent_starts_.size() >= settings_.restarts_per_second_max) {
    next = std::max(next, recent_starts_.front() + 1s);
  }
  if (below_minimum_since_) next = std::min(next, *below_minimum_since_ + settings_.min_ready_within);
  return next;
}

std::vector<place_view> pool::places() const {
  std::vector<place_view> views;
  for (const auto& [worker, p] : places_)
    views.push_back({worker, p.incarnation, p.state, p.restarts, p.restart_at});
  return views;
}

std::uint32_t pool::loader_count(child_state state) const {
  std::uint32_t n = 0;
  for (const auto& [worker, p] : places_)
    n += worker != settings_.sacrificial_place && p.state == state ? 1 : 0;
  return n;
}

std::uint32_t pool::loaders_asked_for() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      places_, [&](const auto& e) { return e.first != settings_.sacrificial_place && !e.second.dismissed; }));
}

std::uint32_t pool::alive() const {
  std::uint32_t n = 0;
  for (const auto& [worker, p] : places_) {
    n += p.state == child_state::starting || p.state == child_state::ready ||
                 p.state == child_state::draining || p.state == child_state::unkillable
             ? 1
             : 0;
  }
  return n;
}

bool pool::degraded() const {
  return std::ranges::any_of(places_, [&](const auto& e) {
    return e.first != settings_.sacrificial_place &&
           (e.second.state == child_state::failed || e.second.state == child_state::unkillable);
  });
}

}  // namespace penstock::supervision
