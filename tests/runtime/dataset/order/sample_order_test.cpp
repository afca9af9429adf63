// The orders of [sampler] kind = "weighted", "balanced", "subset" and "window": properties for random sizes, seeds, epochs and world sizes.
#include "runtime/dataset/order/sample_order.hpp"

#include "runtime/dataset/order/plan.hpp"
#include "tests/runtime/dataset/order/dice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>

using namespace penstock;
using testing::dice;

namespace {

using order_pointer = std::shared_ptr<const sample_order>;

std::vector<std::uint64_t> epoch_of(const sample_order& order, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint64_t> all(order.positions());
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  order.to_samples(seed, epoch, all);
  return all;
}

std::vector<std::uint64_t> in_order(std::vector<std::uint64_t> all) {
  std::ranges::sort(all);
  return all;
}

std::vector<std::uint64_t> first_numbers(std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return all;
}

std::vector<double> any_weights(dice& between, std::uint64_t samples) {
  std::vector<double> weights(samples);
  for (double& weight : weights)
    weight = between(0, 3) == 0 ? 0.0 : static_cast<double>(between(1, 1000)) / 7;
  weights[between(0, samples - 1)] = 1;
  return weights;
}

/// One order of each kind, over `samples` samples.
order_pointer any_order(dice& between, std::uint64_t samples) {
  switch (between(0, 4)) {
    case 0: return *weighted_order(any_weights(between, samples), between(0, 300));
    case 1: {
      std::vector<std::uint32_t> classes(samples);
      for (auto& one : classes) one = static_cast<std::uint32_t>(between(0, 5));
      return *balanced_order(classes, between(0, 300));
    }
    case 2: {
      std::vector<std::uint64_t> some(between(1, 2 * samples));
      for (auto& one : some) one = between(0, samples - 1);
      return *subset_order(some, samples, between(0, 1) == 0);
    }
    case 3: return window_order(samples, between(1, samples + 5));
    default: {
      std::vector<std::uint64_t> ends(between(1, 9));
      for (auto& end : ends) end = between(0, samples);
      ends.back() = samples;
      return window_of_shards_order(in_order(ends), static_cast<std::uint32_t>(between(1, 4)));
    }
  }
}

}  // namespace

TEST_CASE("a sample depends only on seed, epoch and position, whether computed alone or with others") {
  dice between("orders of samples");
  for (int round = 0; round < 400; ++round) {
    const order_pointer order = any_order(between, between(1, 200));
    const std::uint64_t seed = between(0, 1000);
    const std::uint64_t epoch = between(0, 3);
    const auto all = epoch_of(*order, seed, epoch);
    for (int one = 0; one < 20; ++one) {
      const std::uint64_t position = between(0, all.size() - 1);
      std::uint64_t sample = position;
      order->to_samples(seed, epoch, {&sample, 1});
      REQUIRE(sample == all[position]);
    }
  }
}

TEST_CASE("the ranks of any world together deliver the positions of one order") {
  dice between("orders of samples");
  for (int round = 0; round < 300; ++round) {
    plan_settings s;
    s.order = any_order(between, between(1, 200));
    s.samples = s.order->positions();
    s.seed = between(0, 1000);
    s.batch_size = static_cast<std::uint32_t>(between(1, 12));
    s.world_size = static_cast<std::uint32_t>(between(1, 6));
    s.uneven = uneven_rule::allow;
    const auto all = epoch_of(*s.order, s.seed, 1);
    for (s.rank = 0; s.rank < s.world_size; ++s.rank) {
      const plan of_rank = *plan::create(s);
      std::uint64_t position = s.rank;
      for (std::uint64_t seq = 0; seq < of_rank.batches_per_epoch(); ++seq)
        for (const std::uint64_t sample : of_rank.batch(1, seq)) {
          REQUIRE(sample == all[position]);
          position += s.world_size;
        }
      REQUIRE(position >= s.samples);
    }
  }
}

TEST_CASE("a weighted order draws each sample in proportion to its weight and never one of weight 0") {
  dice between("orders of samples");
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t samples = between(1, 30);
    const auto weights = any_weights(between, samples);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    constexpr std::uint64_t draws = 60'000;
    std::vector<std::uint64_t> times(samples);
    for (const std::uint64_t sample : epoch_of(**weighted_order(weights, draws), between(0, 1000), 0))
      ++times[sample];
    for (std::uint64_t i = 0; i < samples; ++i) {
      const double share = weights[i] / total;
      const double deviation = std::sqrt(draws * share * (1 - share));
      INFO(fmt::format("sample {} of weight {}: {} times of {}", i, weights[i], times[i], draws * share));
      REQUIRE(std::abs(static_cast<double>(times[i]) - draws * share) <= 6 * deviation + 1e-6);
    }
  }
}

TEST_CASE("a weighted order differs between epochs and between seeds") {
  const auto order = *weighted_order(std::vector<double>(1000, 1.0), 0);
  CHECK(epoch_of(*order, 1, 0) != epoch_of(*order, 1, 1));
  CHECK(epoch_of(*order, 1, 0) != epoch_of(*order, 2, 0));
}

TEST_CASE(
    "a negative, infinite or NaN weight is refused by its sample, and so are weights that are all zero") {
  const auto said = [](std::vector<double> weights) { return weighted_order(weights, 0).error().message; };
  CHECK(said({1, -0.5}) == "the weight of sample 1 is -0.5: weights must be finite numbers, 0 or more");
  CHECK(said({std::nan(""), 1}) == "the weight of sample 0 is nan: weights must be finite numbers, 0 or more");
  CHECK(said({1, std::numeric_limits<double>::infinity()}).starts_with("the weight of sample 1 is inf"));
  CHECK(said({0, 0, 0}) == "all 3 weights are 0: there is nothing to draw");
  const double largest = std::numeric_limits<double>::max();
  CHECK(in_order(epoch_of(**weighted_order(std::vector<double>{largest, largest}, 64), 1, 0)).back() == 1);
}

TEST_CASE("in every prefix of a balanced order, class counts differ by at most one") {
  dice between("orders of samples");
  for (int round = 0; round < 60; ++round) {
    std::vector<std::uint32_t> class_of(between(1, 120));
    for (auto& one : class_of) one = static_cast<std::uint32_t>(between(0, between(0, 9)));
    const auto order = *balanced_order(class_of, 700);
    std::map<std::uint32_t, std::uint64_t> times;
    for (const std::uint32_t one : class_of) times[one] = 0;
    for (const std::uint64_t sample : epoch_of(*order, between(0, 1000), between(0, 3))) {
      ++times[class_of[sample]];
      const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
      const auto [least, most] = std::minmax_element(times.begin(), times.end(), fewer);
      REQUIRE(most->second - least->second <= 1);
    }
  }
}

TEST_CASE("samples without a class never come in a balanced order, and do not count for its length") {
  const std::vector<std::uint32_t> class_of{no_class, 0, no_class, 7, 7, no_class};
  const auto order = *balanced_order(class_of, 0);
  REQUIRE(order->positions() == 3);
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch)
    for (const std::uint64_t sample : epoch_of(*order, 3, epoch)) CHECK(class_of[sample] != no_class);
  CHECK_FALSE(balanced_order(std::vector<std::uint32_t>(4, no_class), 0).has_value());
}

TEST_CASE("each class of a balanced order gives all its samples before it repeats one") {
  std::vector<std::uint32_t> class_of(40, 0);
  std::fill(class_of.begin() + 30, class_of.end(), 1U);
  std::map<std::uint64_t, int> times;
  for (const std::uint64_t sample : epoch_of(**balanced_order(class_of, 60), 7, 2)) ++times[sample];
  for (std::uint64_t i = 0; i < 30; ++i) CHECK(times[i] == 1);
  for (std::uint64_t i = 30; i < 40; ++i) CHECK(times[i] == 3);
}

TEST_CASE("a subset has each listed sample as often as it is listed, in the list's order unless shuffled") {
  const std::vector<std::uint64_t> list{7, 3, 3, 0, 9};
  CHECK(epoch_of(**subset_order(list, 10, false), 1, 4) == list);
  const auto shuffled = *subset_order(list, 10, true);
  CHECK(in_order(epoch_of(*shuffled, 1, 4)) == in_order(list));
  CHECK(subset_order({}, 10, true).error().message ==
        "the list has no indices: an epoch would have no samples");
  CHECK(subset_order({9, 10}, 10, true).error().message ==
        "index 10 (number 2 of the list) is too large: the dataset has 10 samples, counted from 0");
}

TEST_CASE("a window order has each sample once an epoch, displaced by less than the window") {
  dice between("orders of samples");
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t samples = between(1, 300);
    const std::uint64_t window = between(1, samples + 10);
    const auto all = epoch_of(*window_order(samples, window), between(0, 1000), between(0, 3));
    INFO(fmt::format("{} samples, window {}", samples, window));
    REQUIRE(in_order(all) == first_numbers(samples));
    for (std::uint64_t p = 0; p < samples; ++p) REQUIRE((all[p] > p ? all[p] - p : p - all[p]) < window);
  }
}

TEST_CASE("a window order moves samples across block edges, and no position is an edge for every seed") {
  std::vector<bool> crossed(99);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto all = epoch_of(*window_order(100, 10), seed, 0);
    for (std::uint64_t edge = 0; edge < 99; ++edge)
      crossed[edge] =
          crossed[edge] ||
          *std::max_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(edge) + 1) > edge;
  }
  CHECK(std::ranges::count(crossed, false) == 0);
}

TEST_CASE("a window over shards has each sample once, and the order of shards changes with the epoch") {
  dice between("orders of samples");
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> ends(between(1, 12));
    for (auto& end : ends) end = between(0, 200);
    ends = in_order(ends);
    if (ends.back() == 0) continue;
    const auto order = window_of_shards_order(ends, static_cast<std::uint32_t>(between(1, 4)));
    REQUIRE(in_order(epoch_of(*order, between(0, 99), between(0, 3))) == first_numbers(ends.back()));
  }
  std::vector<std::uint64_t> even(20);
  for (std::uint64_t i = 0; i < even.size(); ++i) even[i] = (i + 1) * 50;
  const auto order = window_of_shards_order(even, 1);
  const auto one = epoch_of(*order, 3, 0);
  CHECK(one != epoch_of(*order, 3, 1));
  // Batches as large as a shard touch few shards.
  for (std::uint64_t first = 0; first < one.size(); first += 50) {
    std::vector<std::uint64_t> shards;
    for (std::uint64_t p = first; p < first + 50; ++p) shards.push_back(one[p] / 50);
    shards = in_order(shards);
    const auto repeats = std::ranges::unique(shards);
    CHECK(std::distance(shards.begin(), repeats.begin()) <= 4);
  }
}
