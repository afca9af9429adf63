#include "runtime/dataset/order/plan.hpp"

#include "runtime/dataset/order/shuffle.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

using namespace penstock;

namespace {

std::vector<std::uint64_t> epoch_of(const plan_settings& settings, std::uint64_t epoch) {
  const plan made = *plan::create(settings);
  std::vector<std::uint64_t> all;
  for (std::uint64_t seq = 0; seq < made.batches_per_epoch(); ++seq) {
    const auto batch = made.batch(epoch, seq);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::vector<std::uint64_t> sorted(std::vector<std::uint64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<std::uint64_t> counting(std::uint64_t n) {
  std::vector<std::uint64_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("the shuffle is a bijection for every small count") {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    const permutation order(n, 42, n);
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = order(i);
      REQUIRE(to < n);
      REQUIRE(!hit[to]);
      hit[to] = true;
    }
  }
}

TEST_CASE("the shuffle is a bijection around powers of two and squares") {
  for (const std::uint64_t n : {65535ULL, 65536ULL, 65537ULL, 99856ULL, 99857ULL, 100003ULL}) {
    const permutation order(n, 1, 0);
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = order(i);
      REQUIRE(to < n);
      REQUIRE(!hit[to]);
      hit[to] = true;
    }
  }
}

TEST_CASE("the shuffle of more than 2^32 samples stays in range and never maps two indices to one position") {
  for (const std::uint64_t n : {(1ULL << 32U) + 1, (1ULL << 40U) - 3, (1ULL << 62U) + 12345}) {
    const permutation order(n, 3, 4);
    std::set<std::uint64_t> reached;
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const std::uint64_t from = i % 2 == 0 ? i : n - i;
      const std::uint64_t to = order(from);
      REQUIRE(to < n);
      reached.insert(to);
    }
    CHECK(reached.size() == 20000);
    CHECK(*reached.rbegin() > n / 10 * 9);  // reaches high ...
    CHECK(*reached.begin() < n / 10);       // ... and low
  }
}

TEST_CASE("all orders of four samples occur about equally often") {
  std::map<std::array<std::uint64_t, 4>, int> counts;
  constexpr int epochs = 24000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const permutation order(4, 5, static_cast<std::uint64_t>(epoch));
    ++counts[{order(0), order(1), order(2), order(3)}];
  }
  REQUIRE(counts.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_square < 57);  // 23 degrees of freedom: exceeded by chance once in 10^4; the seed is fixed
}

TEST_CASE(
    "over many epochs an index visits all positions equally often, and neighbours do not stay together") {
  constexpr std::uint64_t n = 1000;
  std::array<int, 50> place{};
  std::array<int, 50> distance{};
  constexpr int epochs = 50000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const permutation order(n, 6, static_cast<std::uint64_t>(epoch));
    const std::uint64_t a = order(500);
    const std::uint64_t b = order(501);
    ++place[a / 20];
    ++distance[(a + n - b) % n / 20];
  }
  const auto chi_square = [](const std::array<int, 50>& counts) {
    double sum = 0;
    for (const int count : counts) sum += (count - 1000.0) * (count - 1000.0) / 1000.0;
    return sum;
  };
  CHECK(chi_square(place) < 95);  // 49 degrees of freedom
  CHECK(chi_square(distance) < 95 + 2);
}

TEST_CASE("different epochs and seeds give different orders, and equal ones give the same order") {
  const plan_settings settings{.samples = 1000, .seed = 1, .batch_size = 64};
  plan_settings other_seed = settings;
  other_seed.seed = 2;
  CHECK(epoch_of(settings, 0) == epoch_of(settings, 0));
  CHECK(epoch_of(settings, 0) != epoch_of(settings, 1));
  CHECK(epoch_of(settings, 0) != epoch_of(other_seed, 0));
  CHECK(sorted(epoch_of(settings, 0)) == counting(1000));
}

TEST_CASE("the order of an epoch is the same as in every earlier version") {
  // A saved state identifies batches by number: this order must not change without a new state format.
  const plan made = *plan::create({.samples = 1000003, .seed = 1234, .batch_size = 4});
  CHECK(made.batch(0, 0) == std::vector<std::uint64_t>{53153, 382225, 80957, 825502});
  CHECK(made.batch(7, 100) == std::vector<std::uint64_t>{980790, 166812, 903925, 819678});
}

TEST_CASE("without shuffle the batches count up") {
  const plan made = *plan::create({.samples = 10, .shuffle = false, .batch_size = 4});
  CHECK(made.batches_per_epoch() == 3);
  CHECK(made.expected_samples() == 10);
  CHECK(made.batch(5, 0) == std::vector<std::uint64_t>{0, 1, 2, 3});
  CHECK(made.batch(5, 2) == std::vector<std::uint64_t>{8, 9});
  CHECK(made.rows(5, 2) == 2);
}

TEST_CASE("drop_last omits the incomplete batch and does not expect it") {
  const plan made = *plan::create({.samples = 10, .shuffle = false, .batch_size = 4, .drop_last = true});
  CHECK(made.batches_per_epoch() == 2);
  CHECK(made.expected_samples() == 8);
  const plan none = *plan::create({.samples = 3, .batch_size = 4, .drop_last = true});
  CHECK(none.batches_per_epoch() == 0);
  CHECK(none.expected_samples() == 0);
}

TEST_CASE("under allow the ranks deliver every sample exactly once, for any counts") {
  for (const std::uint64_t samples : {0ULL, 1ULL, 2ULL, 7ULL, 8ULL, 100ULL, 101ULL}) {
    for (const std::uint32_t world : {1U, 2U, 3U, 8U}) {
      std::vector<std::uint64_t> all;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const plan_settings settings{.samples = samples,
                                     .seed = 9,
                                     .batch_size = 3,
                                     .rank = rank,
                                     .world_size = world,
                                     .uneven = uneven_rule::allow};
        const auto mine = epoch_of(settings, 2);
        CHECK(mine.size() == plan::create(settings)->expected_samples());
        all.insert(all.end(), mine.begin(), mine.end());
      }
      CHECK(sorted(all) == counting(samples));
    }
  }
}

TEST_CASE(
    "drop_last with drop or allow gives all ranks the same number of full batches, and no sample twice") {
  for (const uneven_rule uneven : {uneven_rule::drop, uneven_rule::allow})
    for (const std::uint64_t samples : {0ULL, 5ULL, 23ULL, 24ULL, 25ULL, 100ULL}) {
      std::vector<std::uint64_t> all;
      for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const plan_settings settings{.samples = samples,
                                     .seed = 9,
                                     .batch_size = 3,
                                     .drop_last = true,
                                     .rank = rank,
                                     .world_size = 4,
                                     .uneven = uneven};
        CHECK(plan::create(settings)->batches_per_epoch() == samples / 4 / 3);
        const auto mine = epoch_of(settings, 0);
        CHECK(mine.size() == samples / 4 / 3 * 3);
        all.insert(all.end(), mine.begin(), mine.end());
      }
      CHECK(std::set(all.begin(), all.end()).size() == all.size());
    }
}

TEST_CASE("replacements are indices of the dataset and depend only on epoch, position and try") {
  const plan made = *plan::create({.samples = 1000, .seed = 3, .batch_size = 10});
  std::set<std::uint64_t> drawn;
  for (std::uint32_t attempt = 1; attempt <= replacement_tries; ++attempt) {
    const std::uint64_t index = made.replacement(0, made.position(0, 3, 4), attempt);
    CHECK(index < 1000);
    CHECK(index == made.replacement(0, 34, attempt));
    drawn.insert(index);
  }
  CHECK(drawn.size() > 12);
  CHECK(made.replacement(0, 34, 1) != made.replacement(1, 34, 1));
  CHECK(made.replacement(0, 34, 1) != made.replacement(0, 35, 1));
  const plan single = *plan::create({.samples = 1, .batch_size = 1});
  CHECK(single.replacement(0, 0, 16) == 0);
}

TEST_CASE("each rank draws its own replacements") {
  const plan first = *plan::create({.samples = 1000000, .batch_size = 10, .rank = 0, .world_size = 2});
  const plan second = *plan::create({.samples = 1000000, .batch_size = 10, .rank = 1, .world_size = 2});
  CHECK(first.position(0, 0, 0) != second.position(0, 0, 0));
  CHECK(first.replacement(0, first.position(0, 0, 0), 1) !=
        second.replacement(0, second.position(0, 0, 0), 1));
}

TEST_CASE("settings that define no plan are refused with the reason") {
  const auto message = [](const plan_settings& settings) {
    const auto made = plan::create(settings);
    return made ? std::string() : made.error().message;
  };
  CHECK(message({.samples = 1, .batch_size = 0}) == "the batch size is 0, which makes no batches");
  CHECK(message({.samples = 1, .world_size = 0}) == "the world size is 0, which leaves no rank to load for");
  CHECK(message({.samples = 1, .rank = 2, .world_size = 2}) ==
        "rank 2 is not in a world of 2 (ranks count from 0)");
  CHECK(message({.samples = ~0ULL}) == "18446744073709551615 samples are too many to plan");
}
