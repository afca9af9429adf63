#include "runtime/dataset/order/mixture_order.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/dataset/order/mixture_shares.hpp"
#include "runtime/dataset/order/philox.hpp"
#include "runtime/dataset/order/shuffle.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace penstock {
namespace {

/// The pattern of an epoch, and how many samples each dataset contributed to earlier epochs.
struct mixed_epoch {
  std::shared_ptr<const mixture_pattern> pattern;
  std::vector<std::uint64_t> counts;  // samples of each dataset in this epoch
  std::vector<std::uint64_t> before;
};

class mixed final : public sample_order {
 public:
  mixed(std::vector<mixed_order> datasets, std::vector<mixed_epoch> epochs, std::uint64_t positions)
      : datasets_(std::move(datasets)), epochs_(std::move(epochs)), positions_(positions) {
    std::uint64_t first = 0;
    for (const mixed_order& one : datasets_) {
      firsts_.push_back(first);
      first += one.samples;
    }
  }

  [[nodiscard]] std::uint64_t positions() const noexcept override { return positions_; }

  void to_samples(std::uint64_t seed, std::uint64_t epoch, std::span<std::uint64_t> places) const override {
    const mixed_epoch& known = epochs_[std::min<std::uint64_t>(epoch, epochs_.size() - 1)];
    const std::uint64_t repeats = epoch - std::min<std::uint64_t>(epoch, epochs_.size() - 1);
    std::vector<draw> draws(places.size());
    for (std::size_t row = 0; row < places.size(); ++row) {
      const auto [d, before] = known.pattern->at(places[row]);
      const std::uint64_t number = known.before[d] + repeats * known.counts[d] + before;
      const std::uint64_t length = length_of(datasets_[d]);
      draws[row] = {d, number / length, number % length, row};
    }
    // Sorted, so that one call to a dataset's order covers many positions of one epoch.
    std::ranges::sort(draws, {}, [](const draw& one) { return std::tuple(one.dataset, one.lap, one.row); });
    std::vector<std::uint64_t> chosen;
    for (auto begin = draws.begin(); begin != draws.end();) {
      const auto end = std::find_if(begin, draws.end(), [&](const draw& other) {
        return other.dataset != begin->dataset || other.lap != begin->lap;
      });
      chosen.clear();
      for (auto one = begin; one != end; ++one) chosen.push_back(one->position);
      walk(begin->dataset, seed, begin->lap, chosen);
      for (auto one = begin; one != end; ++one)
        places[one->row] = firsts_[begin->dataset] + chosen[static_cast<std::size_t>(one - begin)];
      begin = end;
    }
  }

 private:
  struct draw {
    std::uint32_t dataset = 0;
    std::uint64_t lap = 0;  // the dataset's own epoch
    std::uint64_t position = 0;
    std::size_t row = 0;
  };

  static std::uint64_t length_of(const mixed_order& one) {
    return one.order ? one.order->positions() : one.samples;
  }

  /// Each dataset has its own seed. Otherwise datasets of equal length would be shuffled alike.
  void walk(std::uint32_t dataset, std::uint64_t seed, std::uint64_t lap,
            std::span<std::uint64_t> places) const {
    const mixed_order& one = datasets_[dataset];
    const philox_stream stream(random_domain::mixture, seed, 0, one.key);
    const std::uint64_t own_seed = philox_stream::as_u64(stream.block_at(0), 0);
    if (one.order) return one.order->to_samples(own_seed, lap, places);
    if (!one.shuffle) return;
    const permutation shuffled(one.samples, own_seed, lap);
    for (std::uint64_t& place : places) place = shuffled(place);
  }

  std::vector<mixed_order> datasets_;
  std::vector<std::uint64_t> firsts_;  // the first sample of each dataset
  std::vector<mixed_epoch> epochs_;    // one for each epoch until weights stop changing; the last one repeats
  std::uint64_t positions_;
};

}  // namespace

std::vector<double> weights_in(std::span<const mixed_order> datasets, std::uint64_t epoch) {
  std::vector<double> all;
  for (const mixed_order& one : datasets)
    all.push_back(one.weights[std::min<std::uint64_t>(epoch, one.weights.size() - 1)]);
  return all;
}

result<std::shared_ptr<const sample_order>> mixture_order(std::vector<mixed_order> datasets,
                                                          std::uint64_t positions) {
  if (datasets.empty() || datasets.size() > mixed_datasets_max)
    return refuse(errc::config, "a mixture cannot have {}: it can have 1 to {}",
                  counted(datasets.size(), "dataset"), mixed_datasets_max);
  if (positions == 0 || positions > mixed_epoch_max)
    return refuse(errc::config,
                  "[sampler] epoch_samples = {}: an epoch of a mixture can have 1 to {} samples", positions,
                  mixed_epoch_max);
  std::size_t changes = 1;
  for (const mixed_order& one : datasets) changes = std::max(changes, one.weights.size());
  std::vector<mixture_shares> different;
  std::vector<std::size_t> of_epoch;  // the index of each epoch's pattern
  std::uint64_t entries = 0;
  for (std::uint64_t epoch = 0; epoch < changes; ++epoch) {
    mixture_shares shares = shares_of(weights_in(datasets, epoch));
    const auto known = std::ranges::find(different, shares);
    of_epoch.push_back(static_cast<std::size_t>(known - different.begin()));
    if (known != different.end()) continue;
    entries += std::min<std::uint64_t>(shares.sum, positions);
    different.push_back(std::move(shares));
  }
  if (entries > pattern_entries_max) {
    return refuse(errc::config,
                  "the weights of [[datasets]] have {} in {}: the tables made from them would have {} "
                  "entries, and at most {} are possible; write weights with fewer digits",
                  counted(different.size(), "different set"), counted(changes, "epoch"), entries,
                  pattern_entries_max);
  }
  std::vector<std::shared_ptr<const mixture_pattern>> patterns;
  for (const mixture_shares& shares : different)
    patterns.push_back(std::make_shared<const mixture_pattern>(shares, positions));
  std::vector<mixed_epoch> epochs;
  std::vector<std::uint64_t> before(datasets.size(), 0);
  for (const std::size_t which : of_epoch) {
    epochs.push_back({patterns[which], patterns[which]->counts(positions), before});
    for (std::size_t d = 0; d < before.size(); ++d) before[d] += epochs.back().counts[d];
  }
  return std::make_shared<const mixed>(std::move(datasets), std::move(epochs), positions);
}

}  // namespace penstock
