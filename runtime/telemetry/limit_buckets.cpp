#include "runtime/telemetry/limit_buckets.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock::telemetry {
namespace {

constexpr std::int64_t bucket_ns = 100'000'000;
constexpr std::int64_t window_ns = nanoseconds(limit_buckets::span).count();
constexpr std::int64_t kept_ns = nanoseconds(limit_buckets::kept).count();
constexpr std::size_t pauses_max = 64;  // the most pauses kept while the consumer waits for one batch
constexpr std::size_t slow_samples_kept = 3;

/// Keeps the slowest samples: one entry for each sample, at most slow_samples_kept.
void keep_slowest(std::vector<limit_reading::awaited_sample>& samples) {
  const auto is_less = [](const limit_reading::awaited_sample& a, const limit_reading::awaited_sample& b) { return a.seconds > b.seconds; };
  std::ranges::sort(samples, is_less);
  std::vector<limit_reading::awaited_sample> kept;
  for (const limit_reading::awaited_sample& one : samples) {
    const auto is_same = [&](const limit_reading::awaited_sample& other) {
      return one.sample ? one.sample == other.sample && one.name == other.name : !other.sample && one.worker == other.worker;
    };
    if (kept.size() < slow_samples_kept && std::ranges::none_of(kept, is_same)) kept.push_back(one);
  }
  samples = std::move(kept);
}

}  // namespace

void limit_buckets::turn_to(std::int64_t now, std::int64_t taken) {
  std::erase_if(settled_, [oldest = (now - window_ns) / bucket_ns](const auto& b) { return b.first < oldest; });
  estimated_.clear();
  oldest_ = now - kept_ns;
  while (!pauses_.empty() && (pauses_.front().to < std::min(oldest_, taken) || pauses_.size() > pauses_max)) pauses_.pop_front();
  while (!outages_.empty() && outages_.front().to < oldest_) outages_.pop_front();
}

void limit_buckets::forget_until(std::int64_t now) {
  settled_.clear();
  outages_.clear();
  counted_from_ = now;
}

void limit_buckets::pause(const interval& when) {
  if (!pauses_.empty() && pauses_.back().to == when.from) {
    pauses_.back().to = when.to;
  } else {
    pauses_.push_back(when);
  }
}

void limit_buckets::outage(const interval& when, bool frozen) {
  outages_.push_back(when);
  (frozen ? at(when.to).owner_frozen : at(when.to).owner_down) += seconds_of(when.to - when.from);
}

double limit_buckets::unpaused_seconds(interval when) const {
  when.from = std::max(when.from, counted_from_);
  const auto within = [&when](const interval& part) { return std::max<std::int64_t>(std::min(part.to, when.to) - std::max(part.from, when.from), 0); };
  std::int64_t all = within(when);
  for (const interval& pause : pauses_) all -= within(pause);
  return seconds_of(all);
}

limit_buckets::bucket& limit_buckets::at(std::int64_t ns) {
  return (*into_)[ns / bucket_ns];
}

/// Splits the interval at the limits of buckets and calls act(from, to) for each part. Leaves out pauses, and
/// time that is too old to count.
template <class Act>
void limit_buckets::spread(std::int64_t from, std::int64_t to, Act act) const {
  from = std::max({from, counted_from_, oldest_});
  while (from < to) {
    const auto pause = std::ranges::find_if(pauses_, [from](const interval& p) { return p.to > from; });
    if (pause != pauses_.end() && pause->from <= from) {
      from = pause->to;
      continue;
    }
    std::int64_t end = std::min(to, (from / bucket_ns + 1) * bucket_ns);
    if (pause != pauses_.end()) end = std::min(end, pause->from);
    act(from, end);
    from = end;
  }
}

void limit_buckets::add(limit what, std::int64_t from, std::int64_t to, double weight) {
  spread(from, to, [&](std::int64_t first, std::int64_t last) {
    while (first < last) {
      std::int64_t end = last;
      // Without an owner no batch can be taken, so an outage overrides any other cause.
      limit cause = what;
      for (const interval& o : outages_) {
        if (first >= o.from && first < o.to) cause = limit::start;
        for (const std::int64_t edge : {o.from, o.to})
          if (edge > first) end = std::min(end, edge);
      }
      const double seconds = seconds_of(end - first) * weight;
      at(first).seconds[static_cast<std::size_t>(cause)] += seconds;
      if (began_ == 0) at(first).of_beginning[static_cast<std::size_t>(cause)] += seconds;
      first = end;
    }
  });
}

void limit_buckets::add_to(double bucket::*figure, std::int64_t from, std::int64_t to, double weight) {
  spread(from, to, [&](std::int64_t first, std::int64_t last) { at(first).*figure += seconds_of(last - first) * weight; });
}

void limit_buckets::add_held(std::int64_t from, std::int64_t to) {
  add(limit::consumer, from, to);
  add_to(&bucket::held, from, to);
}

void limit_buckets::add_link(std::int64_t from, std::int64_t to) {
  add(limit::wire, from, to);
  add_to(&bucket::link, from, to);
}

void limit_buckets::add_stall(const limit_reading::stalled_head& head, double starved, std::int64_t from, std::int64_t to) {
  add(limit::order, from, to, 1 - starved);
  add_no_core(starved, from, to);
  add_to(&bucket::stalled, from, to, 1 - starved);
  bucket& b = at(to);
  if (!b.stall || b.stall->seconds < head.seconds) b.stall = head;
}

void limit_buckets::add_no_core(double weight, std::int64_t from, std::int64_t to) {
  if (weight <= 0) return;
  add(limit::decode, from, to, weight);
  if (!is_settling_the_first()) add_to(&bucket::no_core, from, to, weight);
}

void limit_buckets::add_slow(const limit_reading::awaited_sample& sample, double weight, std::int64_t from, std::int64_t to) {
  if (weight <= 0 || from >= to || is_settling_the_first()) return;
  add_to(&bucket::slow_seconds, from, to, weight);
  if (into_ == &settled_) spread(from, to, [&](std::int64_t first, std::int64_t last) { slow_seconds_ += seconds_of(last - first) * weight; });
  at(to).slow_samples.push_back(sample);
  keep_slowest(at(to).slow_samples);
}

void limit_buckets::add_lost(std::uint32_t worker, std::int64_t from, std::int64_t to) {
  spread(from, to, [&](std::int64_t first, std::int64_t last) { at(first).lost[worker] += seconds_of(last - first); });
}

void limit_buckets::note_batch(std::uint32_t samples, std::int64_t when) {
  ++at(when).batches;
  at(when).samples += samples;
}

std::int64_t limit_buckets::window_from(std::int64_t now, std::int64_t begun) const {
  return std::max({now - window_ns, begun, counted_from_});
}

limit_reading limit_buckets::read(std::int64_t now, std::int64_t begun) const {
  limit_reading r;
  const std::int64_t first = window_from(now, begun);
  r.seconds = std::max(seconds_of(now - first), 1e-3);
  double stalled = 0;
  std::map<std::uint32_t, double> lost;
  for (const auto* all : {&settled_, &estimated_}) {
    for (const auto& [time, b] : *all) {
      // Only part of the oldest bucket is within the window.
      const double inside =
          std::clamp(seconds_of((time + 1) * bucket_ns - (now - window_ns)) / seconds_of(bucket_ns), 0.0, 1.0);
      for (std::size_t i = 0; i < limit_count; ++i) r.share[i] += b.seconds[i] * inside;
      for (std::size_t i = 0; i < limit_count; ++i) r.share_of_beginning[i] += b.of_beginning[i] * inside;
      r.batches_per_second += static_cast<double>(b.batches);
      r.samples_a_batch += static_cast<double>(b.samples);
      r.held += b.held * inside;
      r.owner_frozen += b.owner_frozen * inside;
      r.owner_down += b.owner_down * inside;
      stalled += b.stalled * inside;
      r.link += b.link * inside;
      r.slow_share += b.slow_seconds * inside;
      r.no_core += b.no_core * inside;
      r.slow_samples.insert(r.slow_samples.end(), b.slow_samples.begin(), b.slow_samples.end());
      if (b.stall && (!r.stall || r.stall->seconds < b.stall->seconds)) r.stall = b.stall;
      if (b.slow) r.slow = b.slow;
      for (const auto& [worker, seconds] : b.lost) lost[worker] += seconds * inside;
    }
  }
  if (2 * stalled < r.of(limit::order)) r.stall.reset();
  keep_slowest(r.slow_samples);
  for (const auto& [worker, seconds] : lost) {
    const double share = std::min(seconds / r.seconds, 1.0);
    if (!r.lost || r.lost->share < share) r.lost = {worker, share};
  }
  for (double& share : r.share) share /= r.seconds;
  for (double& share : r.share_of_beginning) share /= r.seconds;
  r.beginning = std::clamp(seconds_of((began_ == 0 ? now : began_) - first) / r.seconds, 0.0, 1.0);
  r.slow_seconds = slow_seconds_;
  for (double* share : {&r.held, &r.owner_frozen, &r.owner_down, &r.link, &r.slow_share, &r.no_core}) *share = std::min(*share / r.seconds, 1.0);
  const double sum = std::accumulate(r.share.begin(), r.share.end(), 0.0);
  if (sum > 1) {  // caused by rounding at the window's edges
    for (double& share : r.share) share /= sum;
    for (double& share : r.share_of_beginning) share /= sum;
  }
  if (r.batches_per_second > 0) r.samples_a_batch /= r.batches_per_second;
  r.batches_per_second /= r.seconds;
  return r;
}

}  // namespace penstock::telemetry
