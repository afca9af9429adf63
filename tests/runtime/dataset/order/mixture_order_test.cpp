// The order of a mixture: shares, patterns, and a model that walks every dataset sample after sample.
#include "runtime/dataset/order/mixture_order.hpp"

#include "runtime/dataset/order/mixture_shares.hpp"
#include "tests/runtime/dataset/order/dice.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

using namespace penstock;
using testing::dice;

namespace {

std::vector<std::uint32_t> parts_of(std::vector<double> weights) {
  return shares_of(weights).parts;
}

mixed_order dataset_of(std::uint64_t samples, std::vector<double> weights, std::uint64_t key,
                       bool shuffle = true) {
  return {samples, nullptr, shuffle, key, std::move(weights)};
}

std::vector<std::uint64_t> epoch_of(const sample_order& order, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint64_t> all(order.positions());
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  order.to_samples(seed, epoch, all);
  return all;
}

}  // namespace

TEST_CASE("weights with a common denominator of at most 10^6 are exact") {
  using parts = std::vector<std::uint32_t>;
  CHECK(shares_of(std::vector{0.7, 0.2, 0.1}) == mixture_shares{{7, 2, 1}, 10, true});
  CHECK(parts_of({1, 1, 1}) == parts{1, 1, 1});
  CHECK(parts_of({1.5, 2.25}) == parts{2, 3});
  CHECK(parts_of({0.333, 0.333, 0.334}) == parts{333, 333, 334});
  CHECK(parts_of({1.0 / 3, 1.0 / 3}) == parts{1, 1});
  CHECK(parts_of({3e-300, 1e-300}) == parts{3, 1});
  CHECK(parts_of({2e300, 6e300, 0}) == parts{1, 3, 0});
  CHECK(parts_of({0.000001, 0.999999}) == parts{1, 999999});
  CHECK(parts_of({5}) == parts{1});
  CHECK(shares_of(std::vector{999999.0, 1.0}).exact);
}

TEST_CASE("other weights are rounded to a denominator of 10^6, and no positive weight becomes 0") {
  dice between("orders of mixtures");
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(between(2, 40));
    for (double& weight : weights) weight = std::exp(static_cast<double>(between(0, 4000)) / 100 - 20);
    const mixture_shares shares = shares_of(weights);
    CHECK(std::ranges::none_of(shares.parts, [](std::uint32_t part) { return part == 0; }));
    CHECK(std::accumulate(shares.parts.begin(), shares.parts.end(), 0U) == shares.sum);
    CHECK(shares.sum <= shares_sum_max);
    if (shares.exact) continue;
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t d = 0; d < weights.size(); ++d) {
      const double ideal = weights[d] / all;
      // A dataset that would round to 0 takes its part from the largest dataset.
      if (ideal * shares_sum_max > 1 && ideal < 0.02)
        CHECK(std::abs(shares.parts[d] * 1.0 / shares.sum - ideal) <= 1.1 / shares_sum_max);
    }
  }
  const mixture_shares tiny = shares_of(std::vector{1.0, 1e-30, 3.14159265358979});
  CHECK_FALSE(tiny.exact);
  CHECK(tiny.parts[1] >= 1);
}

TEST_CASE("every prefix of a mixture is within one sample of the weights") {
  dice between("orders of mixtures");
  for (int round = 0; round < 300; ++round) {
    mixture_shares shares;
    shares.parts.resize(between(1, round % 10 == 0 ? 200 : 9));
    const std::uint64_t most = between(1, 300);
    for (auto& part : shares.parts) part = static_cast<std::uint32_t>(between(1, most));
    shares.sum = std::accumulate(shares.parts.begin(), shares.parts.end(), 0U);
    const mixture_pattern pattern(shares, ~std::uint64_t{0});
    std::vector<std::uint64_t> taken(shares.parts.size(), 0);
    bool within = true;
    for (std::uint64_t position = 0; position < 2 * shares.sum + 7; ++position) {
      const auto [d, before] = pattern.at(position);
      REQUIRE(before == taken[d]);
      ++taken[d];
      for (std::size_t i = 0; i < taken.size(); ++i) {
        // |taken - position * part / sum| < 1, in whole numbers.
        const auto ideal = static_cast<std::int64_t>((position + 1) * shares.parts[i]);
        within = within && std::abs(static_cast<std::int64_t>(taken[i] * shares.sum) - ideal) <
                               std::int64_t{shares.sum};
      }
    }
    REQUIRE(within);
    const std::uint64_t length = between(0, 3 * shares.sum);
    std::vector<std::uint64_t> counted(shares.parts.size(), 0);
    for (std::uint64_t position = 0; position < length; ++position) ++counted[pattern.at(position).dataset];
    REQUIRE(pattern.counts(length) == counted);
  }
}

TEST_CASE("a mixture equals a model that walks each of its datasets from the first position") {
  dice between("orders of mixtures");
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t seed = between(0, ~std::uint64_t{0});
    const std::uint64_t positions = between(1, 200);
    std::vector<mixed_order> datasets;
    for (std::uint64_t d = between(1, 6); d > 0; --d) {
      std::vector<double> weights(between(1, 4));
      for (double& weight : weights) weight = static_cast<double>(between(datasets.empty() ? 1 : 0, 20));
      mixed_order one = dataset_of(between(1, 60), weights, between(0, 99), between(0, 1) == 0);
      if (between(0, 2) == 0) one.order = window_order(one.samples, between(1, 20));
      if (between(0, 3) == 0) {
        std::vector<std::uint64_t> some(between(1, 30));
        for (auto& sample : some) sample = between(0, one.samples - 1);
        one.order = *subset_order(some, one.samples, between(0, 1) == 0);
      }
      datasets.push_back(std::move(one));
    }
    const auto mixed = mixture_order(datasets, positions);
    REQUIRE(mixed);

    // Each dataset alone: a mixture of one dataset is that dataset's own walk.
    std::vector<std::vector<std::uint64_t>> walks;
    constexpr std::uint64_t epochs = 7;
    for (const mixed_order& one : datasets) {
      mixed_order alone = one;
      alone.weights = {1};
      const auto order = mixture_order({alone}, positions * epochs);
      walks.push_back(epoch_of(**order, seed, 0));
    }
    std::vector<std::uint64_t> taken(datasets.size(), 0);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const mixture_pattern pattern(shares_of(weights_in(datasets, epoch)), positions);
      std::vector<std::uint64_t> expected;
      for (std::uint64_t position = 0; position < positions; ++position) {
        const std::uint32_t d = pattern.at(position).dataset;
        std::uint64_t first = 0;
        for (std::uint32_t i = 0; i < d; ++i) first += datasets[i].samples;
        expected.push_back(first + walks[d][taken[d]++]);
      }
      REQUIRE(epoch_of(**mixed, seed, epoch) == expected);
      std::uint64_t any = between(0, positions - 1);
      const std::uint64_t wanted = expected[any];
      (*mixed)->to_samples(seed, epoch, {&any, 1});
      REQUIRE(any == wanted);
    }
  }
}

TEST_CASE(
    "a dataset of a mixture gives each sample once before it repeats one, across epochs of the mixture") {
  const auto mixed = *mixture_order({dataset_of(30, {2}, 1), dataset_of(1000, {1}, 2)}, 45);
  std::vector<std::uint64_t> small;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
    for (const std::uint64_t sample : epoch_of(*mixed, 5, epoch))
      if (sample < 30) small.push_back(sample);
  REQUIRE(small.size() == 60);
  std::vector<std::uint64_t> laps[2] = {{small.begin(), small.begin() + 30},
                                        {small.begin() + 30, small.end()}};
  CHECK(laps[0] != laps[1]);
  for (auto& lap : laps) {
    std::ranges::sort(lap);
    CHECK(std::ranges::adjacent_find(lap) == lap.end());
  }
}

TEST_CASE("equally long datasets are shuffled differently, and the same at any place of the list") {
  const auto walk = [](std::uint64_t key, bool second) {
    std::vector<mixed_order> both{dataset_of(50, {1}, key), dataset_of(20, {1}, 77)};
    if (second) std::ranges::reverse(both);
    const auto mixed = *mixture_order(both, 100);
    std::vector<std::uint64_t> mine;
    for (const std::uint64_t sample : epoch_of(*mixed, 9, 0))
      if (second ? sample >= 20 : sample < 50) mine.push_back(sample - (second ? 20 : 0));
    return mine;
  };
  CHECK(walk(1, false) == walk(1, true));
  CHECK(walk(1, false) != walk(2, false));
}

TEST_CASE("any position of a mixture of 256 datasets, in any epoch, is computed directly") {
  std::vector<mixed_order> datasets;
  for (std::uint64_t d = 0; d < mixed_datasets_max; ++d)
    datasets.push_back(dataset_of(std::uint64_t{1} << 40U, {static_cast<double>(d + 1)}, d));
  const auto mixed = mixture_order(datasets, mixed_epoch_max);
  REQUIRE(mixed);
  std::vector<std::uint64_t> places{0, mixed_epoch_max / 2, mixed_epoch_max - 1};
  (*mixed)->to_samples(1, 999'999, places);
  CHECK(std::ranges::all_of(places, [](std::uint64_t sample) { return sample < mixed_datasets_max << 40U; }));
}

TEST_CASE("a mixture whose epoch or patterns are too long is refused with the number") {
  const auto refusal = [](std::vector<mixed_order> datasets, std::uint64_t positions) {
    return mixture_order(std::move(datasets), positions).error().message;
  };
  CHECK(refusal({dataset_of(5, {1}, 1)}, 0).find("epoch_samples = 0") != std::string::npos);
  CHECK(refusal({dataset_of(5, {1}, 1)}, mixed_epoch_max + 1).find("an epoch of a mixture can have 1 to") !=
        std::string::npos);
  std::vector<double> changing;
  for (int i = 0; i < 40; ++i) changing.push_back(500'000 + i * 2 + 1);
  const std::string why = refusal({dataset_of(5, changing, 1), dataset_of(5, {499'998}, 2)}, mixed_epoch_max);
  CHECK(why.find("write weights with fewer digits") != std::string::npos);
}
