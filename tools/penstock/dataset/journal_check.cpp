#include "tools/penstock/dataset/journal_check.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace penstock::cli {
namespace {

/// What `from` has and `without` lacks, with repeats.
std::vector<std::uint64_t> left_over(std::vector<std::uint64_t> from, std::vector<std::uint64_t> without) {
  std::ranges::sort(from);
  std::ranges::sort(without);
  std::vector<std::uint64_t> left;
  std::ranges::set_difference(from, without, std::back_inserter(left));
  return left;
}

}  // namespace

journal_check::journal_check(std::span<const delivered_batch> lines) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, delivered_batch> latest;
  for (const delivered_batch& line : lines) {
    const auto [known, is_new] = latest.try_emplace({line.epoch, line.sequence}, line);
    if (is_new) continue;
    if (known->second.digest != line.digest) contradictory_.push_back(line);
    known->second = line;
  }
  for (auto& [place, line] : latest) batches_.push_back(std::move(line));
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
