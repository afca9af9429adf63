#include "tools/penstock/dataset/journal_check.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace penstock::cli {
namespace {

/// The values of `from` that `without` lacks; repeated values are counted.
std::vector<std::uint64_t> left_over(std::vector<std::uint64_t> from, std::vector<std::uint64_t> without) {
  std::ranges::sort(from);
  std::ranges::sort(without);
  std::vector<std::uint64_t> left;
  std::ranges::set_difference(from, without, std::back_inserter(left));
  return left;
}

}  // namespace

journal_check::journal_check(std::span<const delivered_batch> lines) {
  struct told_batch {
    delivered_batch latest;
    bool repeated = false;
    bool contradictory = false;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, told_batch> told;
  for (const delivered_batch& line : lines) {
    const auto [known, is_new] = told.try_emplace({line.epoch, line.sequence}, told_batch{line});
    if (is_new) continue;
    told_batch& one = known->second;
    one.repeated = true;
    if (one.latest.digest != line.digest || one.latest.samples != line.samples) one.contradictory = true;
    one.latest = line;
  }
  for (auto& [place, one] : told) {
    if (one.repeated) ++repeated_;
    if (one.contradictory) contradictory_.push_back(one.latest);
    batches_.push_back(std::move(one.latest));
  }
}

void journal_check::add_gaps(std::vector<missing_batches>& gaps, std::size_t before_this,
                             const std::function<epoch_extent(std::uint64_t)>& extent_of) const {
  const delivered_batch& before = batches_[before_this - 1];
  const delivered_batch& after = batches_[before_this];
  const auto note = [&](std::uint64_t epoch, std::uint64_t first, std::uint64_t end) {
    if (first < end) gaps.push_back({epoch, first, end - 1});
  };
  if (before.epoch == after.epoch) {
    note(before.epoch, before.sequence + 1, after.sequence);
    return;
  }
  note(before.epoch, before.sequence + 1, extent_of(before.epoch).end);
  for (std::uint64_t epoch = before.epoch + 1; epoch < after.epoch && gaps.size() < gaps_max; ++epoch)
    note(epoch, extent_of(epoch).first, extent_of(epoch).end);
  note(after.epoch, extent_of(after.epoch).first, after.sequence);
}

std::vector<missing_batches> journal_check::missing(
    const std::function<epoch_extent(std::uint64_t)>& extent_of) const {
  std::vector<missing_batches> gaps;
  for (std::size_t i = 1; i < batches_.size() && gaps.size() < gaps_max; ++i) add_gaps(gaps, i, extent_of);
  return gaps;
}

std::size_t journal_check::end_of_run(std::size_t begin,
                                      const std::function<epoch_extent(std::uint64_t)>& extent_of) const {
  std::vector<missing_batches> gaps;
  std::size_t end = begin + 1;
  for (; end < batches_.size(); ++end) {
    const std::uint64_t before = batches_[end - 1].epoch;
    const std::uint64_t after = batches_[end].epoch;
    if (before != after && (after != before + 1 || extent_of(before).entered || extent_of(after).entered)) break;
    add_gaps(gaps, end, extent_of);
    if (!gaps.empty()) break;
  }
  return end;
}

void journal_check::take(std::size_t which, const batch_today& today) {
  const delivered_batch& then = batches_[which];
  if (then.digest == today.digest && then.samples == today.samples) {
    unchanged_samples_.insert(then.samples.begin(), then.samples.end());
    return;
  }
  changed_batch changed{then.epoch, then.sequence, then.digest, today.digest, {}, {}, {}};
  changed.gone = left_over(then.samples, today.samples);
  changed.come = left_over(today.samples, then.samples);
  if (changed.gone.empty() && changed.come.empty()) changed.samples = today.samples;
  changed_.push_back(std::move(changed));
}

std::set<std::uint64_t> journal_check::suspects() const {
  std::set<std::uint64_t> found;
  for (const changed_batch& one : changed_)
    for (const std::uint64_t sample : one.samples)
      if (!unchanged_samples_.contains(sample)) found.insert(sample);
  return found;
}

}  // namespace penstock::cli
