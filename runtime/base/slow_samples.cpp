#include "runtime/base/slow_samples.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

void sample_times::note(std::uint64_t index, const std::string& name, nanoseconds took) {
  recent_.push_back(took);
  if (recent_.size() > recent_max) recent_.pop_front();
  if (took >= slow_sample_excess) batch_.push_back(took);
  if (took < named_from || (slowest_.size() == named_max && took <= slowest_.back().took)) return;
  if (slowest_.size() == named_max) slowest_.pop_back();
  slowest_.push_back({index, name, took});
  std::ranges::sort(slowest_, std::ranges::greater(), &timed_sample::took);
}

sample_times::of_batch sample_times::take() {
  of_batch all{std::exchange(slowest_, {})};
  if (batch_.empty()) return all;
  std::vector<nanoseconds> sorted(recent_.begin(), recent_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  all.usual = *middle;
  for (const nanoseconds took : batch_) {
    if (is_slow_sample(took, *middle)) all.slow += took - *middle;
  }
  batch_.clear();
  return all;
}

void slowest_samples::note(const timed_sample& sample, std::uint32_t worker, steady_time now) {
  const std::lock_guard hold(mutex_);
  std::erase_if(samples_, [&](const slow_sample& s) { return s.when + memory < now; });
  const auto known = std::ranges::find_if(samples_, [&](const slow_sample& s) { return s.sample.index == sample.index && s.sample.name == sample.name; });
  if (known != samples_.end()) {
    if (2 * sample.took < known->sample.took) return;
    const bool alike = sample.took <= 2 * known->sample.took;
    const nanoseconds longest = std::max(sample.took, known->sample.took);
    *known = {sample, worker, alike ? known->times + 1 : 1, now};
    known->sample.took = longest;
    return;
  }
  if (samples_.size() == kept) {
    const auto fastest = std::ranges::min_element(samples_, {}, [](const slow_sample& s) { return s.sample.took; });
    if (sample.took <= fastest->sample.took) return;
    samples_.erase(fastest);
  }
  samples_.push_back({sample, worker, 1, now});
}

std::vector<slow_sample> slowest_samples::at(steady_time now) const {
  const std::lock_guard hold(mutex_);
  std::vector<slow_sample> recent;
  for (const slow_sample& s : samples_) {
    if (s.when + memory >= now) recent.push_back(s);
  }
  std::ranges::sort(recent, std::ranges::greater(), [](const slow_sample& s) { return s.sample.took; });
  return recent;
}

}  // namespace penstock
