#include "runtime/supervision/pool.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/units.hpp"

#include <algorithm>
#include <set>

namespace penstock::supervision {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t canary_pool_size = 4;
constexpr auto canary_window = 1s;

std::int64_t in_seconds(nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

/// "60 s" rather than "1 m 0 s".
std::string time_text(nanoseconds time) {
  const std::int64_t seconds = in_seconds(time);
  return std::chrono::seconds(seconds) == time ? fmt::format("{} s", seconds) : duration_for_people(time);
}

std::string last_line(const std::string& text) {
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0, which gives the whole text
}

}  // namespace

pool::pool(const pool_settings& settings) : settings_(settings) {
  PENSTOCK_CHECK(settings.workers <= settings.sacrificial_place, "{} workers, place {} is sacrificial",
                 settings.workers, settings.sacrificial_place);
  for (std::uint32_t w = 0; w < settings.workers; ++w) at(w).wanted = true;
}

pool::place& pool::at(std::uint32_t worker) {
  restart_settings rules = settings_.restart;
  // The sacrificial worker is always restarted, because a suspect that waits for it blocks the whole stream.
  if (is_sacrificial(worker)) rules.type = restart_type::permanent;
  return places_.try_emplace(worker, restart_policy(rules, settings_.seed + worker)).first->second;
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
  if (closed_) return;
  open_ = true;
  for (auto& [worker, p] : places_) {
    if (p.wanted && p.state == child_state::stopped) p.restart_at = now;
  }
}

void pool::close() {
  closed_ = true;
  open_ = false;
  for (auto& [worker, p] : places_) {
    if (p.state == child_state::backoff) p.state = child_state::stopped;
  }
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
  death counted_as = d;
  if (p->operated) counted_as.ending = death::how::operated;
  const std::string ended = fmt::format("worker {} ended with {}", who.worker, cause);
  const std::string words = last_words.empty() ? "" : "; its last output:\n" + last_words;
  if (counted_as.ending != death::how::operated) note_trouble(who.worker, ended, ended + words);
  const restart_decision next = p->policy.child_died(now, counted_as);
  if (next.act == restart_decision::what::fail && counted_as.ending == death::how::no_restart) {
    const std::string hopeless = ended + "; restarting would not help";
    note_trouble(who.worker, last_words.empty() ? hopeless : hopeless + ": " + last_line(last_words),
                 ended + words);
    // The loaders run the same program, so the run can continue without the sacrificial worker.
    if (p->wanted && !is_sacrificial(who.worker)) fail({errc::worker_program, hopeless + words, 0});
  } else if (next.act == restart_decision::what::fail) {
    note_trouble(who.worker, ended + ", too many times in a row", ended + words);
  }
  settle_death(who.worker, *p, next, now, counted_as.counted());
}

void pool::start_failed(worker_ref who, steady_time now, const failure& why) {
  place* p = current(who);
  if (p == nullptr) return;
  if (why.code == errc::worker_program) {
    // The program is missing or not executable, so every place would fail in the same way.
    p->state = child_state::failed;
    p->wanted = false;
    fail(why);
    return;
  }
  const std::string refused = fmt::format("worker {} could not be started: {}", who.worker, why.message);
  note_trouble(who.worker, refused, refused);
  const bool asked_to_go = p->operated;
  const restart_decision next =
      asked_to_go ? restart_decision{restart_decision::what::restart, now} : p->policy.start_failed(now);
  if (next.act == restart_decision::what::fail)
    note_trouble(who.worker, refused + ", too many times in a row", refused);
  settle_death(who.worker, *p, next, now, !asked_to_go);
}

/// The process of this place has died. Decides what to do with the place.
void pool::settle_death(std::uint32_t worker, place& p, const restart_decision& next, steady_time now,
                        bool counted) {
  p.state = child_state::stopped;
  p.restart_at = never;
  p.operated = false;
  p.drain_sent = false;
  if (!p.wanted || closed_) return;
  switch (next.act) {
    case restart_decision::what::restart:
      p.state = child_state::backoff;
      p.restart_at = next.at;
      break;
    case restart_decision::what::stop:
      p.wanted = false;
      p.why_empty = vacancy::not_restarted;
      break;
    case restart_decision::what::fail:
      p.state = child_state::failed;
      p.wanted = false;
      if (is_sacrificial(worker)) give_sacrificial_up(last_sacrificial_trouble_);
      break;
  }
  if (!counted || is_sacrificial(worker)) return;
  recent_counted_.emplace_back(now, worker);
  choose_canary();
  if (canary_ && canary_ != worker && p.state == child_state::backoff) p.canary_waits = true;
  detect_mass_death(now);
}

void pool::child_unkillable(worker_ref who, const std::string& why) {
  place* p = current(who);
  if (p == nullptr) return;
  p->state = child_state::unkillable;
  const std::string survives = fmt::format("worker {} survives SIGKILL: {}", who.worker, why);
  note_trouble(who.worker, survives, survives);
}

void pool::scale(std::uint32_t workers, steady_time now) {
  PENSTOCK_CHECK(workers <= settings_.sacrificial_place, "{} workers, place {} is sacrificial", workers,
                 settings_.sacrificial_place);
  emptied_by_operator_ = false;
  for (std::uint32_t w = 0; w < workers; ++w) {
    if (!at(w).wanted) occupy(at(w), now);
  }
  for (auto& [worker, p] : places_) {
    // A place beyond the new size is not needed, whatever state it is in.
    if (worker >= workers && worker < settings_.sacrificial_place) vacate(p, vacancy::scaled_down);
  }
}

void pool::restart(std::uint32_t worker, steady_time now) {
  const bool is_remote = worker > settings_.sacrificial_place;
  if (is_remote && (!places_.contains(worker) || at(worker).why_empty == vacancy::host_gone)) return;
  if (!is_sacrificial(worker)) emptied_by_operator_ = false;
  place& p = at(worker);
  const bool exists = p.state == child_state::starting || p.state == child_state::ready;
  if (exists) replace(p);
  if (!is_sacrificial(worker) || sacrificial_wanted_) occupy(p, now);
}

void pool::drain(std::uint32_t worker) {
  const auto it = places_.find(worker);
  if (it == places_.end()) return;
  place& p = it->second;
  if (is_sacrificial(worker)) {
    // The sacrificial worker exists only while it is needed, so an operator can only have it replaced.
    if (p.state == child_state::starting || p.state == child_state::ready) replace(p);
    return;
  }
  empty(p, vacancy::drained);
}

/// Empties the place by an operator's order.
void pool::empty(place& p, vacancy why) {
  // A process that survives SIGKILL was already lost before the operator's order.
  const bool last = p.wanted && p.state != child_state::unkillable;
  vacate(p, why);
  emptied_by_operator_ |= last && !anybody_comes();
}

void pool::host_joined(std::uint32_t worker, steady_time now) {
  PENSTOCK_CHECK(worker > settings_.sacrificial_place, "place {} is local", worker);
  last_refusal_.clear();
  occupy(at(worker), now);
}

void pool::host_left(std::uint32_t worker) {
  if (const auto it = places_.find(worker); it != places_.end()) vacate(it->second, vacancy::host_gone);
  // The last place that an operator had emptied may be gone together with its host.
  emptied_by_operator_ &= std::ranges::any_of(places_, [&](const auto& one) {
    const bool is_remote = one.first > settings_.sacrificial_place;
    return one.second.why_empty == vacancy::drained || (is_remote && one.second.why_empty == vacancy::scaled_down);
  });
}

bool pool::leaves_with_host(std::uint32_t worker) const {
  const auto it = places_.find(worker);
  return worker > settings_.sacrificial_place && it != places_.end() && !it->second.wanted;
}

void pool::host_rests(std::uint32_t worker) {
  if (const auto it = places_.find(worker); it != places_.end()) empty(it->second, vacancy::scaled_down);
}

/// Stops its process and starts a replacement.
void pool::replace(place& p) {
  p.operated = true;
  p.state = child_state::draining;
}

/// The place is no longer needed; its process may finish its leases.
void pool::vacate(place& p, vacancy why) {
  p.policy.reset();
  p.wanted = false;
  p.why_empty = why;
  p.canary_waits = false;
  p.operated |= p.state == child_state::starting || p.state == child_state::ready;
  if (p.state == child_state::backoff || p.state == child_state::failed) p.state = child_state::stopped;
}

/// The place needs a process again.
void pool::occupy(place& p, steady_time now) {
  p.policy.reset();
  p.wanted = true;
  p.why_empty = vacancy::none;
  p.canary_waits = false;
  const bool empty =
      p.state == child_state::stopped || p.state == child_state::backoff || p.state == child_state::failed;
  if (!empty) {
    // A process stays if it has not been asked to stop yet.
    if (p.state == child_state::starting || p.state == child_state::ready) p.operated = false;
    return;
  }
  p.state = child_state::stopped;
  p.restart_at = now;
}

void pool::want_sacrificial(bool wanted, steady_time now) {
  if (std::exchange(sacrificial_wanted_, wanted) == wanted) return;
  sacrificial_missing_since_.reset();
  place& p = at(settings_.sacrificial_place);
  if (wanted) {
    occupy(p, now);
  } else {
    vacate(p, vacancy::not_needed);
  }
}

void pool::recycle(worker_ref who) {
  place* p = current(who);
  if (p != nullptr && p->state == child_state::ready) replace(*p);
}

std::vector<pool_command> pool::advance(steady_time now) {
  if (open_ && !failed_) {
    check_sacrificial(now);
    check_minimum(now);
  }
  for (auto& [worker, p] : places_) {
    const bool exists = p.state == child_state::starting || p.state == child_state::ready;
    if (exists && !p.wanted) {
      p.operated = true;
      p.state = child_state::draining;
    }
    if (p.state == child_state::draining && !p.drain_sent) {
      p.drain_sent = true;
      outbox_.emplace_back(drain_child{{worker, p.incarnation}});
    }
  }
  choose_canary();
  if (open_ && !failed_) start_due_places(now);
  return std::exchange(outbox_, {});
}

void pool::start_due_places(steady_time now) {
  while (!recent_starts_.empty() && now - recent_starts_.front() >= 1s) recent_starts_.pop_front();
  for (auto& [worker, p] : places_) {
    const bool due = p.wanted && (p.state == child_state::stopped || p.state == child_state::backoff) &&
                     p.restart_at <= now && !p.canary_waits;
    if (!due) continue;
    const bool again = p.incarnation > 0;
    // The limit of restarts per second only delays restarts and never fails the run.
    // First starts do not count.
    if (again && recent_starts_.size() >= settings_.restarts_per_second_max) continue;
    if (again) {
      recent_starts_.push_back(now);
      // The sacrificial worker exists only while it is needed, so its starts replace no process.
      if (!is_sacrificial(worker)) {
        ++p.restarts;
        ++restarts_;
      }
    }
    ++p.incarnation;
    ++started_;
    p.state = child_state::starting;
    p.restart_at = never;
    outbox_.emplace_back(start_child{{worker, p.incarnation}, is_sacrificial(worker)});
  }
}

void pool::detect_mass_death(steady_time now) {
  while (!recent_counted_.empty() && now - recent_counted_.front().first > canary_window)
    recent_counted_.pop_front();
  std::uint32_t loaders = 0;
  for (const auto& [worker, p] : places_) loaders += !is_sacrificial(worker) && p.wanted ? 1 : 0;
  std::set<std::uint32_t> died;  // a set, because one place whose workers keep dying must not count as half of the pool
  for (const auto& [when, worker] : recent_counted_) died.insert(worker);
  if (loaders < canary_pool_size || canary_ || died.size() * 2 < loaders) return;
  // Assume one common cause, and let one place, the canary, retry on behalf of all.
  for (auto& [worker, p] : places_) {
    if (is_sacrificial(worker)) continue;
    if (p.state == child_state::backoff) p.canary_waits = true;
    // A process that is already starting becomes the canary.
    if (p.state == child_state::starting) canary_ = worker;
  }
  recent_counted_.clear();
  choose_canary();
}

/// If places wait for a canary, makes sure that there is one and that it may start.
void pool::choose_canary() {
  const auto can_try = [](const place& p) {
    return p.wanted && (p.state == child_state::stopped || p.state == child_state::backoff ||
                        p.state == child_state::starting);
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

/// A suspect waits for the sacrificial worker, which therefore gets no more time than
/// a loader to become ready.
void pool::check_sacrificial(steady_time now) {
  const auto it = places_.find(settings_.sacrificial_place);
  if (it == places_.end()) return;
  place& p = it->second;
  if (!p.wanted || p.state == child_state::ready || p.state == child_state::draining) {
    sacrificial_missing_since_.reset();
    return;
  }
  if (!sacrificial_missing_since_) sacrificial_missing_since_ = now;
  if (now - *sacrificial_missing_since_ < settings_.min_ready_within) return;
  sacrificial_missing_since_.reset();
  vacate(p, vacancy::not_needed);
  give_sacrificial_up(fmt::format("worker {} was not ready within {} s{}{}", it->first,
                                  in_seconds(settings_.min_ready_within),
                                  last_sacrificial_trouble_.empty() ? "" : "; ", last_sacrificial_trouble_));
}

void pool::give_sacrificial_up(const std::string& reason) {
  outbox_.emplace_back(sacrificial_failed{reason});
  last_sacrificial_trouble_.clear();
}

void pool::discount_time(nanoseconds time) noexcept {
  if (below_minimum_since_) *below_minimum_since_ += time;
  if (without_workers_since_) *without_workers_since_ += time;
  if (sacrificial_missing_since_) *sacrificial_missing_since_ += time;
}

void pool::check_minimum(steady_time now) {
  if (anybody_comes()) emptied_by_operator_ = false;
  const std::uint32_t draining = loader_count(child_state::draining);
  if (emptied_by_operator_) {
    below_minimum_since_.reset();  // the operator decides when to continue
    return;
  }
  if (settings_.host_wait && !anybody_comes()) return wait_for_host(now);
  without_workers_since_.reset();
  if (!anybody_comes() && draining == 0) {
    fail({errc::workers_exhausted, with_last_trouble(text_of_none_left()), 0});
    return;
  }
  // Places that an operator has emptied do not count.
  const std::uint32_t minimum = std::min(settings_.min_ready, loaders_asked_for());
  const std::uint32_t ready = loader_count(child_state::ready) + draining;
  if (ready >= minimum) {
    below_minimum_since_.reset();
    return;
  }
  if (!below_minimum_since_) below_minimum_since_ = now;
  if (now - *below_minimum_since_ < settings_.min_ready_within) return;
  fail({errc::workers_exhausted,
        with_last_trouble(fmt::format("fewer than {} loader workers were ready for {} s: only {}", minimum,
                                      in_seconds(settings_.min_ready_within), ready)),
        0});
}

/// No loader is left, or there never was one: waits for a loader host.
void pool::wait_for_host(steady_time now) {
  below_minimum_since_.reset();
  if (!without_workers_since_) without_workers_since_ = now;
  if (now - *without_workers_since_ < *settings_.host_wait) return;
  const std::string text = fmt::format("there is no loader worker, and no loader host has joined for {} ([loader.hosts] wait)",
                                       duration_for_people(*settings_.host_wait));
  fail({errc::workers_exhausted, last_refusal_.empty() ? with_last_trouble(text) : text + "; " + last_refusal_, 0});
}

/// Whether a loader exists and stays, or will be started.
bool pool::anybody_comes() const {
  return std::ranges::any_of(places_, [&](const auto& e) {
    const place& p = e.second;
    return !is_sacrificial(e.first) && p.wanted && p.state != child_state::unkillable;
  });
}

/// Stores the cause for the final error, or for the message that the sacrificial worker was given up.
void pool::note_trouble(std::uint32_t worker, const std::string& if_sacrificial,
                        const std::string& if_loader) {
  if (is_sacrificial(worker)) {
    last_sacrificial_trouble_ = if_sacrificial;
  } else {
    last_trouble_ = if_loader;
  }
}

std::string pool::with_last_trouble(std::string text) const {
  return last_trouble_.empty() ? text : text + "; " + last_trouble_;
}

/// Says which rule of [loader.restart] has left no worker.
std::string pool::text_of_none_left() const {
  std::string text = "no loader worker is left";
  const restart_settings& rules = settings_.restart;
  const auto is = [&](child_state state, vacancy why) {
    return [this, state, why](const auto& e) { return !is_sacrificial(e.first) && e.second.state == state && e.second.why_empty == why; };
  };
  if (const auto failed = std::ranges::find_if(places_, is(child_state::failed, vacancy::none)); failed != places_.end()) {
    if (rules.intensity_max == 0) return text + ", and [loader.restart] intensity allows no restart";
    return fmt::format("{}: worker {} was restarted {} within {}, the limit of [loader.restart] intensity", text, failed->first,
                       counted(rules.intensity_max, "time"), time_text(rules.intensity_within));
  }
  if (std::ranges::any_of(places_, is(child_state::stopped, vacancy::not_restarted)))
    return fmt::format("{}, and [loader.restart] type = \"{}\" allows no restart", text,
                       rules.type == restart_type::temporary ? "temporary" : "transient");
  return text;
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
  // The limit of starts per second delays a place until one second after the oldest recent start.
  if (next != never && !recent_starts_.empty() &&
      recent_starts_.size() >= settings_.restarts_per_second_max) {
    next = std::max(next, recent_starts_.front() + 1s);
  }
  if (below_minimum_since_) next = std::min(next, *below_minimum_since_ + settings_.min_ready_within);
  if (without_workers_since_) next = std::min(next, *without_workers_since_ + *settings_.host_wait);
  if (sacrificial_missing_since_)
    next = std::min(next, *sacrificial_missing_since_ + settings_.min_ready_within);
  return next;
}

std::vector<place_view> pool::places() const {
  std::vector<place_view> views;
  for (const auto& each : places_) views.push_back(place_of(each.first));
  return views;
}

place_view pool::place_of(std::uint32_t worker) const {
  const auto found = places_.find(worker);
  if (found == places_.end()) return {worker};
  const place& p = found->second;
  const bool stopped = p.state == child_state::stopped;
  return {worker, p.incarnation, p.state, p.restarts, p.restart_at, stopped ? p.why_empty : vacancy::none};
}

std::uint32_t pool::loader_count(child_state state) const {
  std::uint32_t n = 0;
  for (const auto& [worker, p] : places_) n += !is_sacrificial(worker) && p.state == state ? 1 : 0;
  return n;
}

std::uint32_t pool::loaders_asked_for() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(places_, [&](const auto& e) {
    const vacancy why = e.second.why_empty;
    return !is_sacrificial(e.first) && why != vacancy::drained && why != vacancy::scaled_down &&
           why != vacancy::host_gone;
  }));
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
    return !is_sacrificial(e.first) &&
           (e.second.state == child_state::failed || e.second.state == child_state::unkillable);
  });
}

}  // namespace penstock::supervision
