#include "runtime/supervision/worker_tuner.hpp"

#include "runtime/base/counted.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace penstock::supervision {
namespace {

using namespace std::chrono_literals;

constexpr double looks_apart_max = 2;  // seconds; if more have passed, this process was suspended
constexpr auto settles_for = 500ms;
constexpr auto takes_within = 2s;
constexpr auto ready_within = 30s;  // after this time the tuner measures with the workers that are ready
constexpr double first_search_max = 20;
constexpr double last_trial_at = 17;
// How many seconds one measurement takes.
constexpr double while_searching = 1.5;
constexpr double while_settled = 5;
constexpr double longest = 10;
constexpr double samples_a_worker = 8;  // fewer samples per worker make a measurement too inaccurate

// Shares of the consumer's time.
constexpr double waits_little = 0.03;
constexpr double waits_matter = 0.05;
// If the consumer waits more than this, a few more workers would not be enough.
constexpr double waits_much = 0.25;
// In the first search: seconds without waits before the tuner shrinks the pool.
constexpr double fed_at_first = 4.5;
constexpr double fed_later = 10;
constexpr std::size_t needs_kept = 3;
constexpr double room = 1.15;  // workers to run for each one that is busy
constexpr double worth_shrinking = 0.9;

// More workers may help if the workers are busy for at least this share of their time.
constexpr double busy_enough = 0.7;
constexpr double busy_fully = 0.8;
constexpr double idle_enough = 0.25;  // cores
constexpr double cores_are_short = 0.15;
constexpr double demand_min = 0.05;  // a worker is assumed to need at least this many cores
constexpr double half_a_core = 0.5;
constexpr double own_changes = 0.6;  // cores

// Ratios of rates.
constexpr double gains = 1.03;
constexpr double rises = 1.1;
constexpr double as_fast = 0.985;
constexpr double linear = 0.9;
constexpr double moved = 0.25;

constexpr nanoseconds first_patience = 60s;
constexpr nanoseconds longest_patience = 16min;

double seconds_of(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

int percent(double share) {
  return static_cast<int>(std::lround(share * 100));
}

std::string per_second(double rate) {
  return fmt::format("{:.0f} samples a second", rate);
}

nanoseconds longer(nanoseconds wait) {
  return wait == 0ns ? first_patience : std::min(2 * wait, longest_patience);
}

}  // namespace

worker_tuner::worker_tuner(const tuner_limits& limits, std::uint32_t workers)
    : limits_(limits), wanted_(workers) {
  last_search_.from = workers;
}

std::optional<tuner_step> worker_tuner::look(steady_time now, const tuner_facts& facts) {
  const measurement m = since_last_look(now, facts);
  const auto ready = static_cast<std::uint32_t>(std::ranges::count_if(facts.workers, &worker_look::ready));
  if (!facts.flows || m.seconds <= 0 || m.seconds > looks_apart_max) {
    sum_ = {};
    return std::nullopt;
  }
  if (ready != wanted_ && !lacking_since_) lacking_since_ = now;
  if (ready == wanted_) lacking_since_.reset();
  if (ready == 0 || (lacking_since_ && now - *lacking_since_ < ready_within)) {
    sum_ = {};
    measures_from_ = now + settles_for;
    return std::nullopt;
  }
  if (now < measures_from_) return std::nullopt;
  // A consumer that neither takes batches nor waits for one is doing something else,
  // such as saving a checkpoint.
  if (m.delivered > 0 || m.waited > 0) took_ = now;
  if (now - took_ > takes_within) return std::nullopt;
  flowed_ += m.seconds;
  sum_.seconds += m.seconds;
  sum_.waited += m.waited;
  sum_.loaded += m.loaded;
  sum_.delivered += m.delivered;
  sum_.ready += m.ready;
  sum_.busy += m.busy;
  sum_.cpu += m.cpu;
  sum_.core_wait += m.core_wait;
  sum_.own_cpu += m.own_cpu;
  if (!is_complete()) return std::nullopt;
  return decide(now, std::exchange(sum_, {}));
}

worker_tuner::measurement worker_tuner::since_last_look(steady_time now, const tuner_facts& facts) {
  measurement m;
  if (looked_) m.seconds = seconds_of(now - *looked_);
  const auto grown = [&m](nanoseconds from, nanoseconds to) { return std::clamp(seconds_of(to - from), 0.0, m.seconds); };
  for (const worker_look& w : facts.workers) {
    worker_memory& before = before_[w.id];
    if (before.incarnation != w.incarnation) before = {w.incarnation, w.cpu, w.core_wait, w.samples};
    if (w.ready) {
      m.ready += m.seconds;
      if (w.busy) m.busy += m.seconds;
      m.cpu += grown(before.cpu, w.cpu);
      m.core_wait += grown(before.core_wait, w.core_wait);
    }
    if (w.samples > before.samples) m.loaded += static_cast<double>(w.samples - before.samples);
    before = {w.incarnation, w.cpu, w.core_wait, w.samples};
  }
  if (looked_) {
    m.waited = std::clamp(facts.waited_seconds - last_.waited_seconds, 0.0, m.seconds);
    if (facts.delivered > last_.delivered) m.delivered = static_cast<double>(facts.delivered - last_.delivered);
    m.own_cpu = std::max(seconds_of(facts.own_cpu - last_.own_cpu), 0.0);
  }
  looked_ = now;
  last_ = facts;
  return m;
}

bool worker_tuner::is_complete() const {
  if (sum_.seconds < (searching_ ? while_searching : while_settled)) return false;
  return sum_.loaded >= samples_a_worker * sum_.workers() || sum_.seconds >= longest;
}

// ---- decisions --------------------------------------------------------------------------------------------

std::optional<tuner_step> worker_tuner::decide(steady_time now, const measurement& m) {
  if (first_ && flowed_ > first_search_max) first_ = false;
  note_own_need(m);
  if (m.waits() < waits_little) return feed_consumer(now, m);
  fed_ = 0;
  needs_.clear();
  if (m.waits() < waits_matter) {
    rates_.clear();  // these rates do not show how fast the workers can load
    return searching_ ? end_search(now, m) : std::nullopt;
  }
  const std::uint32_t fit = most(m);
  const bool too_many = wanted_ > fit && wanted_ * m.demand() > limits_.cores - reserved_ + half_a_core;
  if (too_many && (first_ || recent_changes(now) < changes_a_minute)) {
    begin_search();
    return change(now, fit,
                  fmt::format("this program itself used {:.1f} of {:g} cores, and a worker {:.1f}", m.own_cpu / m.seconds,
                              limits_.cores, m.demand()));
  }
  return search(now, m);
}

/// The consumer does not wait: chooses as many workers as it keeps busy, and some more.
std::optional<tuner_step> worker_tuner::feed_consumer(steady_time now, const measurement& m) {
  fed_ += m.seconds;
  // Use the larger of two estimates: the workers' activity is only sampled; their CPU time is exact
  // but does not include reads.
  needs_.push_back(std::max(m.busy, m.cpu + m.core_wait) / m.seconds);
  if (needs_.size() > needs_kept) needs_.pop_front();
  if (fed_ < (searching_ ? fed_at_first : fed_later)) return std::nullopt;
  // In the first measurements, workers were also loading batches ahead, so use only the latest ones.
  const double need = searching_ ? (needs_[needs_.size() > 1 ? needs_.size() - 2 : 0] + needs_.back()) / 2 : *std::ranges::max_element(needs_);
  const bool is_first = first_;
  rates_.clear();
  searching_ = first_ = false;
  std::uint32_t enough = std::max(limits_.min, static_cast<std::uint32_t>(std::ceil(need * room)));
  if (now < floor_.valid.until) enough = std::max(enough, floor_.workers);
  std::string why = fmt::format("the consumer took {}, which kept {:.1f} workers busy", per_second(m.delivered / m.seconds), need);
  if (enough > worth_shrinking * wanted_ || (!is_first && recent_changes(now) >= changes_a_minute)) {
    sentence_ = std::move(why);
    return std::nullopt;
  }
  fed_ = 0;
  needs_.clear();
  floor_.shrunk_at = now;
  last_search_.again = {};
  first_ = is_first;
  auto step = change(now, enough, std::move(why));
  first_ = false;
  return step;
}

/// The consumer waits: searches for the number of workers that loads fastest.
std::optional<tuner_step> worker_tuner::search(steady_time now, const measurement& m) {
  if (auto step = grow_again(now, m)) return step;
  const double rate = m.loaded / m.seconds;
  if (!searching_) {
    const auto known = rates_.find(wanted_);
    if (known != rates_.end() && std::abs(rate / known->second - 1) < moved) return std::nullopt;
    if (now < last_search_.again.until) return std::nullopt;
    begin_search();
  }
  const auto [known, is_new] = rates_.try_emplace(wanted_, rate);
  if (!is_new) known->second = (known->second + rate) / 2;
  // Changes are limited after the first search, so a trial must leave one change for going back.
  const bool may_try = first_ ? flowed_ < last_trial_at : recent_changes(now) + 2 <= changes_a_minute;
  auto trial = next_trial(now, m);
  if (trial && may_try) return change(now, trial->to, std::move(trial->why));
  const bool continues = trial && !first_ && trial->to > best();
  auto step = end_search(now, m);
  if (continues) rates_.clear();  // the search starts over when changes are allowed again
  return step;
}

/// If the consumer waits soon after the pool shrank, the pool grows again.
std::optional<tuner_step> worker_tuner::grow_again(steady_time now, const measurement& m) {
  if (floor_.shrunk_at == never || m.busy_share() < busy_enough || m.waits() > waits_much) return std::nullopt;
  // Changes are limited, so a search must leave one change for going back.
  if (!first_ && recent_changes(now) + (searching_ ? 2 : 1) > changes_a_minute) return std::nullopt;
  const bool was_lately = now - std::exchange(floor_.shrunk_at, never) < first_patience;
  if (!was_lately || recent_changes(now) >= changes_a_minute) return std::nullopt;
  const std::uint32_t more = std::min(wanted_ + std::max(1U, wanted_ / 4), limits_.max);
  floor_.workers = more;
  floor_.valid.wait = longer(floor_.valid.wait);
  floor_.valid.until = now + floor_.valid.wait;
  if (more == wanted_) return std::nullopt;
  return change(now, more, fmt::format("with {} the consumer waited {} % of the time", wanted_, percent(m.waits())));
}

void worker_tuner::begin_search() {
  rates_.clear();
  searching_ = true;
  last_search_.from = wanted_;
}

std::optional<tuner_step> worker_tuner::end_search(steady_time now, const measurement& m) {
  searching_ = false;
  const std::uint32_t chosen = rates_.empty() ? wanted_ : best();
  last_search_.again.wait = chosen == last_search_.from ? longer(last_search_.again.wait) : first_patience;
  last_search_.again.until = now + last_search_.again.wait;
  std::optional<tuner_step> step;
  if (chosen != wanted_) {
    step = change(now, chosen,
                  fmt::format("{} loaded {}, and {} {:.0f}", counted(chosen, "worker"), per_second(rates_.at(chosen)),
                              wanted_, rates_.at(wanted_)));
  } else if (m.waits() < waits_matter) {
    sentence_ = fmt::format("the consumer waited only {} % of the time", percent(m.waits()));
  } else if (m.busy_share() < busy_enough) {
    sentence_ = fmt::format("the workers were busy only {} % of the time, so more would not help", percent(m.busy_share()));
  } else if (const auto more = rates_.upper_bound(wanted_); more != rates_.end()) {
    sentence_ = fmt::format("{} loaded no more: {}, and {} {:.0f}", counted(more->first, "worker"), per_second(more->second),
                            wanted_, rates_.at(wanted_));
  } else {
    sentence_ = wanted_ >= limits_.max ? fmt::format("[loader.limits] max allows no more")
                                       : fmt::format("{:.1f} of {:g} cores were idle", idle_cores(m), limits_.cores);
  }
  first_ = false;
  return step;
}

// ---- the search -------------------------------------------------------------------------------------------

std::optional<tuner_step> worker_tuner::next_trial(steady_time now, const measurement& m) const {
  const std::uint32_t top = best();
  const std::uint32_t largest = rates_.rbegin()->first;
  if (top == largest && top == wanted_) {
    const bool gained = rates_.size() == 1 || rates_.at(top) > gains * std::next(rates_.rbegin())->second;
    const std::uint32_t more = std::min(2 * top, most(m));
    if (gained && m.busy_share() >= busy_enough && idle_cores(m) >= idle_enough && more > top) {
      return tuner_step{wanted_, more,
                        fmt::format("the consumer waited {} % of the time, and {:.1f} of {:g} cores were idle",
                                    percent(m.waits()), idle_cores(m), limits_.cores),
                        now};
    }
  }
  const auto below = trial_below(m);
  const auto other = below ? below : trial_between();
  if (!other) return std::nullopt;
  return tuner_step{wanted_, *other,
                    *other < top ? fmt::format("to see whether fewer than {} load as fast", top)
                                 : fmt::format("to see whether more than {} load faster", top),
                    now};
}

/// Tries a number next to the best one, on the side on which the rate may level off.
std::optional<std::uint32_t> worker_tuner::trial_between() const {
  const auto at = rates_.find(best());
  const std::uint32_t top = at->first;
  const std::uint32_t tolerance = std::max(1U, top / 8);
  std::uint32_t gap_above = 0;
  std::uint32_t gap_below = 0;
  const bool rose = at == rates_.begin() || at->second > rises * std::prev(at)->second;
  if (std::next(at) != rates_.end() && rose) gap_above = std::next(at)->first - top;
  if (at != rates_.begin()) {
    const auto [fewer, rate] = *std::prev(at);
    if (at->second / top < linear * rate / fewer) gap_below = top - fewer;
  }
  if (std::max(gap_above, gap_below) <= tolerance) return std::nullopt;
  return gap_above > gap_below ? top + gap_above / 2 : top - gap_below / 2;
}

/// Tries a number below the best one, if the best one is the smallest that was tried.
std::optional<std::uint32_t> worker_tuner::trial_below(const measurement& m) const {
  const std::uint32_t top = best();
  if (top != rates_.begin()->first) return std::nullopt;
  std::uint32_t fewer = top - top / 4;
  if (top == wanted_ && m.busy_share() < busy_fully) fewer = std::min(fewer, static_cast<std::uint32_t>(std::ceil(m.busy_workers() * room)));
  fewer = std::max(fewer, limits_.min);
  return fewer < top ? std::optional(fewer) : std::nullopt;
}

/// The smallest number of workers that loads about as fast as the best.
std::uint32_t worker_tuner::best() const {
  double fastest = 0;
  for (const auto& [workers, rate] : rates_) fastest = std::max(fastest, rate);
  return std::ranges::find_if(rates_, [&](const auto& one) { return one.second >= as_fast * fastest; })->first;
}

// ---- cores ------------------------------------------------------------------------------------------------

/// Updates how many cores this program itself needs: a whole number, changed only if
/// the need changes clearly.
void worker_tuner::note_own_need(const measurement& m) {
  const double own = m.own_cpu / m.seconds;
  if (std::abs(own - reserved_) > own_changes) reserved_ = std::round(own);
}

double worker_tuner::idle_cores(const measurement& m) const {
  if (m.core_wait > cores_are_short * m.ready) return 0;  // other programs use the cores
  return std::max(limits_.cores - std::max(reserved_, m.own_cpu / m.seconds) - m.cpu / m.seconds, 0.0);
}

/// The largest number of workers that fits on the cores that this program does not need itself.
std::uint32_t worker_tuner::most(const measurement& m) const {
  const double cores = limits_.cores < 1 ? 0 : std::max(limits_.cores - reserved_, 0.0);
  const double fit = std::floor(cores / std::max(m.demand(), demand_min) + 0.1);
  return std::clamp(static_cast<std::uint32_t>(fit), std::max(limits_.min, 1U), limits_.max);
}

// ---- steps ------------------------------------------------------------------------------------------------

std::optional<tuner_step> worker_tuner::change(steady_time now, std::uint32_t to, std::string why) {
  while (!changes_.empty() && now - changes_.front() >= 1min) changes_.pop_front();
  if (!first_) changes_.push_back(now);
  const std::uint32_t from = std::exchange(wanted_, to);
  sum_ = {};
  measures_from_ = now + settles_for;
  sentence_ = why;
  return tuner_step{from, to, std::move(why), now};
}

void worker_tuner::refused(const tuner_step& step, const std::string& why) {
  wanted_ = step.from;
  limits_.max = std::max(limits_.min, step.from);
  sentence_ = why;
}

std::uint32_t worker_tuner::recent_changes(steady_time now) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(changes_, [&](steady_time at) { return now - at < 1min; }));
}

}  // namespace penstock::supervision
