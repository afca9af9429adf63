#include "runtime/dataset/order/sample_order.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/dataset/order/shuffle.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace penstock {
namespace {

/// The permutation for the item that was requested last. Consecutive positions usually need the same one.
class latest_permutation {
 public:
  latest_permutation(random_domain domain, std::uint64_t seed, std::uint64_t epoch) noexcept
      : domain_(domain), seed_(seed), epoch_(epoch) {}

  const permutation& of(std::uint64_t item, std::uint64_t n) {
    if (!latest_ || latest_->first != item)
      latest_.emplace(item, permutation(n, philox_stream(domain_, seed_, epoch_, item)));
    return latest_->second;
  }

 private:
  random_domain domain_;
  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::optional<std::pair<std::uint64_t, permutation>> latest_;
};

class listed_order final : public sample_order {
 public:
  listed_order(std::vector<std::uint64_t> indices, bool shuffle)
      : indices_(std::move(indices)), shuffle_(shuffle) {}

  [[nodiscard]] std::uint64_t positions() const noexcept override { return indices_.size(); }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    const permutation shuffled(indices_.size(), seed, epoch);
    for (std::uint64_t& place : places) place = indices_[shuffle_ ? shuffled(place) : place];
  }

 private:
  std::vector<std::uint64_t> indices_;
  bool shuffle_;
};

/// Position p is turn p mod classes of round p / classes. Each round contains every class once; the order of the
/// classes differs from round to round. In round r, a class of n samples gives sample r mod n of its lap r / n;
/// each lap is a permutation of the samples.
class class_order final : public sample_order {
 public:
  class_order(std::span<const std::uint32_t> class_of, std::uint64_t positions)
      : positions_(positions), samples_(class_of.size()) {
    std::iota(samples_.begin(), samples_.end(), std::uint64_t{0});
    std::erase_if(samples_, [&](std::uint64_t sample) { return class_of[sample] == no_class; });
    if (positions_ == 0) positions_ = samples_.size();
    std::ranges::stable_sort(samples_, {}, [&](std::uint64_t sample) { return class_of[sample]; });
    for (std::uint64_t i = 1; i < samples_.size(); ++i)
      if (class_of[samples_[i]] != class_of[samples_[i - 1]]) begins_.push_back(i);
    begins_.push_back(samples_.size());
  }

  [[nodiscard]] std::uint64_t positions() const noexcept override { return positions_; }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    const std::uint64_t classes = begins_.size() - 1;
    latest_permutation turns(random_domain::balanced, seed, epoch);
    for (std::uint64_t& place : places) {
      const std::uint64_t round = place / classes;
      const std::uint64_t chosen = turns.of(round, classes)(place % classes);
      const std::uint64_t begin = begins_[chosen];
      const std::uint64_t count = begins_[chosen + 1] - begin;
      // The random streams of laps are numbered above those of rounds.
      const std::uint64_t lap = lap_bit | (chosen << 40U) | (round / count);
      const permutation own(count, philox_stream(random_domain::balanced, seed, epoch, lap));
      place = samples_[begin + own(round % count)];
    }
  }

 private:
  static constexpr std::uint64_t lap_bit = std::uint64_t{1} << 63U;
  std::uint64_t positions_;
  std::vector<std::uint64_t> samples_;    // class by class
  std::vector<std::uint64_t> begins_{0};  // where each class begins in samples_; the last one is their end
};

/// Shuffles twice within blocks of half a window. The blocks of the second round begin in the middle of those of the
/// first, so samples can cross block boundaries. Each round moves a sample by less than a block, so both together move
/// it by less than the window.
class neighbours {
 public:
  neighbours(std::uint64_t samples, std::uint64_t window)
      : samples_(samples), length_((std::min(window, 2 * samples) + 1) / 2) {}

  void shuffle(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const {
    for (const std::uint64_t round : {1U, 0U}) {
      const std::uint64_t shift = round == 0 ? 0 : length_ / 2;
      latest_permutation blocks(random_domain::window, seed, epoch);
      for (std::uint64_t& place : places) {
        const std::uint64_t block = (place + shift) / length_;
        const std::uint64_t begin = block * length_ - std::min(block * length_, shift);
        const std::uint64_t end = std::min((block + 1) * length_ - shift, samples_);
        place = begin + blocks.of(block * 2 + round, end - begin)(place - begin);
      }
    }
  }

 private:
  std::uint64_t samples_;
  std::uint64_t length_;  // length of a block
};

class neighbour_order final : public sample_order {
 public:
  neighbour_order(std::uint64_t samples, std::uint64_t window)
      : samples_(samples), within_(samples, window) {}

  [[nodiscard]] std::uint64_t positions() const noexcept override { return samples_; }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    within_.shuffle(seed, epoch, places);
  }

 private:
  std::uint64_t samples_;
  neighbours within_;
};

/// Computes the order of the shards in each call, which takes some microseconds per thousand shards.
class shard_order final : public sample_order {
 public:
  shard_order(std::vector<std::uint64_t> ends, std::uint64_t window)
      : ends_(std::move(ends)), within_(ends_.back(), window) {}

  [[nodiscard]] std::uint64_t positions() const noexcept override { return ends_.back(); }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    within_.shuffle(seed, epoch, places);
    const permutation order(ends_.size(), philox_stream(random_domain::window, seed, epoch, shards_item));
    std::vector<std::uint64_t> shards(ends_.size());
    std::vector<std::uint64_t> ends(ends_.size());  // where each shard ends in the epoch's order
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      shards[i] = order(i);
      end += samples_of(shards[i]);
      ends[i] = end;
    }
    for (std::uint64_t& place : places) {
      const auto at = static_cast<std::uint64_t>(std::ranges::upper_bound(ends, place) - ends.begin());
      const std::uint64_t shard = shards[at];
      const std::uint64_t from_end = ends[at] - place;
      place = ends_[shard] - from_end;
    }
  }

 private:
  static constexpr std::uint64_t shards_item = ~std::uint64_t{0};

  [[nodiscard]] std::uint64_t samples_of(std::uint64_t shard) const {
    return ends_[shard] - (shard == 0 ? 0 : ends_[shard - 1]);
  }

  std::vector<std::uint64_t> ends_;
  neighbours within_;
};

}  // namespace

sample_order::~sample_order() = default;

result<std::shared_ptr<const sample_order>> balanced_order(std::span<const std::uint32_t> class_of,
                                                           std::uint64_t positions) {
  if (std::ranges::all_of(class_of, [](std::uint32_t one) { return one == no_class; })) return refuse(errc::dataset, "no sample has a class");
  return std::make_shared<const class_order>(class_of, positions);
}

result<std::shared_ptr<const sample_order>> subset_order(std::vector<std::uint64_t> indices,
                                                         std::uint64_t samples, bool shuffle) {
  if (indices.empty())
    return refuse(errc::dataset, "the list has no indices: an epoch would have no samples");
  const auto beyond = std::ranges::find_if(indices, [&](std::uint64_t i) { return i >= samples; });
  if (beyond != indices.end()) {
    return refuse(errc::dataset,
                  "index {} (number {} of the list) is too large: the dataset has {}, counted from 0",
                  *beyond, beyond - indices.begin() + 1, counted(samples, "sample"));
  }
  return std::make_shared<const listed_order>(std::move(indices), shuffle);
}

std::shared_ptr<const sample_order> window_order(std::uint64_t samples, std::uint64_t window) {
  return std::make_shared<const neighbour_order>(samples, window);
}

std::shared_ptr<const sample_order> window_of_shards_order(std::vector<std::uint64_t> ends,
                                                           std::uint32_t shards) {
  const std::uint64_t window = (ends.back() + ends.size() - 1) / ends.size() * shards;
  return std::make_shared<const shard_order>(std::move(ends), window);
}

}  // namespace penstock
