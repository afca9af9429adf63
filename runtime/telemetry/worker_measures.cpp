#include "runtime/telemetry/worker_measures.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace penstock::telemetry {
namespace {

constexpr std::int64_t tenth_ns = 100'000'000;
constexpr std::int64_t span_ns = nanoseconds(worker_measures::span).count();
constexpr std::size_t loads_kept = 15;     // per worker
// A worker is compared only after this many batches; the first ones of a new process say little.
constexpr std::size_t compared_from = 5;
// The worker is slow, and not its samples, if at least this many of its last batches had a slow sample, each
// a different one, and at most a quarter as many of its peers' batches had one.
constexpr std::size_t slow_batches = 8;
// If workers are busy for at least this share of their time, none counts as idle.
constexpr double busy_enough = 0.85;
constexpr double measured_enough = 1;  // worker seconds
// If a worker works for less than this share of the time, its other shares say nothing.
constexpr double working_enough = 0.05;
// The link holds up a remote worker if the worker's batches are on their way for at least this share of the
// time, and for longer than the worker works.
constexpr double link_enough = 0.5;

/// Updates an average over about the last second with the value of the last `passed` seconds.
void follow(double& average, double seen, double passed) {
  average += (seen - average) * std::min(passed, 1.0);
}

/// The median of a worker's last batches. Does not allocate, because it is called for each batch.
template <class Batches, class Value>
double median_of(const Batches& last, Value value) {
  std::array<double, loads_kept> values{};
  const auto end = std::ranges::transform(last, values.begin(), value).out;
  const auto middle = values.begin() + (end - values.begin()) / 2;
  std::nth_element(values.begin(), middle, end);
  return *middle;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double seconds_a_sample(const batch_passage& b, std::int64_t left_out) {
  const std::int64_t busy = b.time_of(batch_stage::loaded) - b.time_of(batch_stage::begun);
  return seconds_of(std::max<std::int64_t>(busy - left_out, 0)) / std::max<std::uint32_t>(b.samples, 1);
}

void worker_measures::look(std::int64_t now, std::int64_t before, const std::vector<worker_look>& workers, circumstances with) {
  looked_ = now;
  std::erase_if(times_, [now](const auto& one) { return one.first < (now - span_ns) / tenth_ns; });
  while (!work_.empty() && work_.front().at < now - 2 * span_ns) work_.pop_front();
  time_spent& times = times_[now / tenth_ns];
  const double passed = before > 0 ? seconds_of(now - before) : 0;
  work_seen work{now, passed};
  // A thread's totals read as 0 once it has ended, so clamp the differences.
  const auto grown = [passed](nanoseconds from, nanoseconds to) { return std::clamp(seconds_of((to - from).count()), 0.0, passed); };
  for (const worker_look& w : workers) {
    memory& m = workers_[w.id];
    if (m.incarnation != w.incarnation) {
      m = {};
      m.incarnation = w.incarnation;
      m.cpu = w.cpu;
      m.core_wait = w.core_wait;
      m.received = w.receiving;
    }
    const double had_no_core = grown(m.core_wait, w.core_wait);
    if (passed > 0) {
      follow(m.starved, had_no_core / passed, passed);
      follow(m.running, grown(m.cpu, w.cpu) / passed, passed);
      follow(m.receiving, grown(m.received, w.receiving) / passed, passed);
      follow(m.working, w.busy ? 1 : 0, passed);
    }
    if (w.ready && !with.is_paused) {
      work.ready += passed;
      if (w.busy) work.busy += passed;
      times.cpu += grown(m.cpu, w.cpu);
      times.core_wait += had_no_core;
    }
    if (w.starts) {
      times.starting += passed;
      times.start_core_wait += had_no_core;
    }
    m.cpu = w.cpu;
    m.core_wait = w.core_wait;
    m.received = w.receiving;
    m.reads = w.reads;
  }
  times.ready += work.ready;
  times.busy += work.busy;
  if (work.ready > 0 && !with.owner_is_away) work_.push_back(work);
}

bool worker_measures::loaded(const batch_passage& b) {
  memory& m = workers_[b.worker];
  m.loads.push_back({seconds_a_sample(b), seconds_a_sample(b, b.slow_ns), b.slowest});
  if (m.loads.size() > loads_kept) m.loads.pop_front();
  const bool slows = slows_all_samples(b.worker);
  m.usual = median_of(m.loads, [slows](const load& one) { return slows ? one.with_slow : one.without_slow; });
  const std::int64_t begun = std::max(b.time_of(batch_stage::begun), b.time_of(batch_stage::leased));
  const std::int64_t loading = b.time_of(batch_stage::loaded) - begun;
  m.readings.push_back(loading > 0 ? static_cast<double>(b.reading_ns) / static_cast<double>(loading) : 0);
  if (m.readings.size() > loads_kept) m.readings.pop_front();
  m.reading = median_of(m.readings, std::identity());
  return slows;
}

void worker_measures::consumer_waited(std::int64_t from, std::int64_t to) {
  for (auto w = std::ranges::upper_bound(work_, from, {}, &work_seen::at); w != work_.end() && w->at <= to; ++w) w->waited = true;
}

void worker_measures::forget_times() {
  times_.clear();
  work_.clear();
}

const worker_measures::memory* worker_measures::find(std::uint32_t worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second;
}

worker_measures::core_use worker_measures::core_use_of(std::uint32_t worker) const {
  const memory* const m = find(worker);
  if (m == nullptr) return {};
  const double busy = std::max(m->working, m->running + m->starved);
  return busy < working_enough ? core_use{} : core_use{m->running / busy, m->starved / busy};
}

double worker_measures::starved(std::uint32_t worker) const {
  const memory* const m = find(worker);
  return m == nullptr ? 0 : m->starved;
}

/// Waits for storage, time on a core and waits for a core cannot overlap. If the sum exceeds the whole, the
/// excess was counted twice.
double worker_measures::without_core_wait(std::uint32_t worker, double reading) const {
  const auto [running, starved] = core_use_of(worker);
  return reading - std::clamp(reading + running + starved - 1, 0.0, std::min(reading, starved));
}

bool worker_measures::was_reading(std::uint32_t worker) const {
  const memory* const m = find(worker);
  return m != nullptr && m->reads;
}

bool worker_measures::is_held_up_by_link(std::uint32_t worker) const {
  const memory* const m = find(worker);
  return m != nullptr && m->receiving > link_enough && m->receiving > m->working;
}

std::optional<worker_measures::pace> worker_measures::pace_of(std::uint32_t worker) const {
  const memory* const m = find(worker);
  if (m == nullptr || m->loads.empty()) return std::nullopt;
  return pace{m->usual, m->reading, m->loads.size()};
}

std::optional<double> worker_measures::slowness_of(std::uint32_t worker) const {
  const memory* const own = find(worker);
  if (own == nullptr || own->loads.size() < compared_from) return std::nullopt;
  std::vector<double> peers;
  for (const auto& [id, m] : workers_) {
    if (id != worker && m.loads.size() >= compared_from) peers.push_back(m.usual);
  }
  if (peers.empty()) return std::nullopt;
  const double theirs = median(std::move(peers));
  return theirs > 0 ? std::optional(own->usual / theirs) : std::nullopt;
}

std::vector<std::uint64_t> worker_measures::slow_samples_of(const memory& worker) {
  std::vector<std::uint64_t> slow;
  for (const load& one : worker.loads) {
    if (one.without_slow < one.with_slow) slow.push_back(one.slow_sample);
  }
  return slow;
}

bool worker_measures::slows_all_samples(std::uint32_t worker) const {
  const memory* const own = find(worker);
  if (own == nullptr) return false;
  std::vector<std::uint64_t> slow = slow_samples_of(*own);
  std::ranges::sort(slow);
  if (slow.size() < slow_batches || std::ranges::adjacent_find(slow) != slow.end()) return false;
  bool has_peers = false;
  for (const auto& [id, m] : workers_) {
    if (id == worker || m.loads.size() < compared_from) continue;
    has_peers = true;
    if (4 * slow_samples_of(m).size() * own->loads.size() > slow.size() * m.loads.size()) return false;
  }
  return has_peers;
}

std::vector<double> worker_measures::loads() const {
  std::vector<double> all;
  for (const auto& [id, m] : workers_) {
    for (const load& one : m.loads) all.push_back(one.without_slow);
  }
  return all;
}

double worker_measures::idle_share() const {
  double ready = 0;
  double busy = 0;
  for (const work_seen& w : work_) {
    if (!w.waited || w.at < looked_ - span_ns) continue;
    ready += w.ready;
    busy += w.busy;
  }
  if (ready < measured_enough || busy >= busy_enough * ready) return 0;
  return 1 - busy / ready;
}

double worker_measures::spare_seconds(std::int64_t first, std::int64_t waits_from) const {
  double seconds = 0;
  for (const work_seen& w : work_) {
    const bool waited = w.waited || (waits_from != 0 && w.at > waits_from);
    if (w.at > first && w.busy == 0 && !waited) seconds += w.seconds;
  }
  return seconds;
}

worker_measures::time_spent worker_measures::time() const {
  time_spent all;
  for (const auto& [tenth, one] : times_) {
    all.ready += one.ready;
    all.busy += one.busy;
    all.cpu += one.cpu;
    all.core_wait += one.core_wait;
    all.starting += one.starting;
    all.start_core_wait += one.start_core_wait;
  }
  return all;
}

}  // namespace penstock::telemetry
