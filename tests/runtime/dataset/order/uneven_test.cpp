// How an epoch is divided among the ranks of a group (rules R1 and R11-R13), compared with the rules applied to one position at a time.
#include "runtime/dataset/order/plan.hpp"
#include "runtime/dataset/order/shuffle.hpp"
#include "tests/runtime/dataset/order/dice.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <map>

using namespace penstock;
using testing::dice;

namespace {

/// The positions of each rank from `start` on, directly from the rules.
struct dealt {
  std::vector<std::vector<std::uint64_t>> rows;  // by rank
  std::vector<std::uint64_t> padded;             // by rank: the number of its rows that are repeats
};

dealt by_the_rules(const plan_settings& s, std::uint64_t start) {
  dealt all{std::vector<std::vector<std::uint64_t>>(s.world_size), std::vector<std::uint64_t>(s.world_size)};
  const auto rank_of = [&](std::uint64_t p) { return (p - start) % s.world_size; };
  for (std::uint64_t p = start; p < s.samples; ++p) all.rows[rank_of(p)].push_back(p);
  const auto shortest = [&] {
    return std::ranges::min(all.rows, {}, &std::vector<std::uint64_t>::size).size();
  };
  if (s.uneven == uneven_rule::pad) {
    for (std::uint64_t p = s.samples; s.samples > 0 && (p - start) % s.world_size != 0; ++p) {
      all.rows[rank_of(p)].push_back(p % s.samples);
      ++all.padded[rank_of(p)];
    }
  } else if (s.uneven == uneven_rule::drop || s.drop_last) {
    const std::size_t even = shortest();
    for (auto& rows : all.rows) rows.resize(even);
  }
  if (!s.drop_last) return all;
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    const std::size_t before = all.rows[r].size();
    all.rows[r].resize(before / s.batch_size * s.batch_size);
    if (all.rows[r].size() != before) all.padded[r] = 0;  // the repeat is a rank's last row
  }
  return all;
}

struct delivered_epoch {
  std::vector<std::vector<std::uint64_t>> batches;
  [[nodiscard]] std::vector<std::uint64_t> rows() const {
    std::vector<std::uint64_t> all;
    for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
    return all;
  }
};

delivered_epoch deliver(const plan& order, std::uint64_t epoch) {
  delivered_epoch all;
  for (std::uint64_t seq = order.shape().of(epoch).first_batch; seq < order.batches_per_epoch(); ++seq)
    all.batches.push_back(order.batch(epoch, seq));
  return all;
}

plan_settings any_settings(dice& between) {
  plan_settings s;
  s.samples = between(0, 3) == 0 ? between(0, 20) : between(0, 400);
  s.seed = between(0, 1000);
  s.shuffle = between(0, 1) == 0;
  s.batch_size = static_cast<std::uint32_t>(between(1, 12));
  s.drop_last = between(0, 1) == 0;
  s.world_size = static_cast<std::uint32_t>(between(1, 9));
  s.uneven = static_cast<uneven_rule>(between(0, 2));
  if (s.samples > 1 && between(0, 1) == 0) {
    s.entered_epoch = between(0, 2);
    s.entered_at = between(1, s.samples - 1);
  }
  return s;
}

}  // namespace

TEST_CASE("every rank gets the positions that the rules assign to it, from any start position") {
  dice between("shares of an epoch");
  for (int round = 0; round < 4000; ++round) {
    plan_settings s = any_settings(between);
    INFO(fmt::format("{} samples, {} ranks, batches of {}, drop_last {}, uneven {}, epoch {} entered at {}",
                     s.samples, s.world_size, s.batch_size, s.drop_last, name_of(s.uneven), s.entered_epoch,
                     s.entered_at));
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const std::uint64_t start = s.entered_at != 0 && epoch == s.entered_epoch ? s.entered_at : 0;
      const dealt expected = by_the_rules(s, start);
      for (s.rank = 0; s.rank < s.world_size; ++s.rank) {
        const plan order = *plan::create(s);
        const epoch_share& share = order.shape().of(epoch);
        const auto all = deliver(order, epoch);
        std::vector<std::uint64_t> rows = expected.rows[s.rank];
        if (s.shuffle && s.samples > 0) {
          const permutation shuffled(s.samples, s.seed, epoch);
          for (std::uint64_t& position : rows) position = shuffled(position);
        }
        REQUIRE(all.rows() == rows);
        REQUIRE(share.start == start);
        REQUIRE(share.expected == rows.size());
        REQUIRE(share.padded == expected.padded[s.rank]);
        for (std::size_t i = 0; i + 1 < all.batches.size(); ++i)
          REQUIRE(all.batches[i].size() == s.batch_size);
      }
    }
  }
}

TEST_CASE("under pad and drop every rank delivers the same number of samples and batches") {
  dice between("shares of an epoch");
  for (int round = 0; round < 4000; ++round) {
    plan_settings s = any_settings(between);
    if (s.uneven == uneven_rule::allow && !s.drop_last) continue;
    const plan first = *plan::create(s);
    for (s.rank = 1; s.rank < s.world_size; ++s.rank) {
      const plan other = *plan::create(s);
      for (const std::uint64_t epoch : {s.entered_epoch, s.entered_epoch + 1}) {
        REQUIRE(other.shape().of(epoch).expected == first.shape().of(epoch).expected);
        REQUIRE(other.shape().batches_of(epoch) == first.shape().batches_of(epoch));
      }
    }
  }
}

TEST_CASE("with one rank the order is the same under every rule") {
  for (const std::uint64_t samples : {0ULL, 1ULL, 10ULL, 403ULL}) {
    for (const bool drop_last : {false, true}) {
      plan_settings s{.samples = samples, .seed = 1234, .batch_size = 8, .drop_last = drop_last};
      const plan pad = *plan::create(s);
      CHECK(pad.shape().usual.padded == 0);
      for (const uneven_rule uneven : {uneven_rule::drop, uneven_rule::allow}) {
        s.uneven = uneven;
        CHECK(deliver(*plan::create(s), 1).batches == deliver(pad, 1).batches);
      }
    }
  }
}

TEST_CASE(
    "groups of other sizes continue where the previous group stopped, and positions are delivered as the rules say") {
  dice between("shares of an epoch");
  for (int round = 0; round < 2000; ++round) {
    plan_settings s = any_settings(between);
    s.entered_epoch = 0;
    s.entered_at = 0;
    s.shuffle = false;  // so that an index is its position
    std::map<std::uint64_t, int> times;
    std::uint64_t repeats = 0;
    std::uint64_t left_out = 0;
    std::uint64_t start = 0;
    const std::uint32_t worlds[] = {1, 2, 4, 3, 1};
    for (std::size_t link = 0; link < std::size(worlds); ++link) {
      s.world_size = worlds[link];
      s.batch_size = static_cast<std::uint32_t>(between(1, 6));
      s.entered_at = start;
      s.rank = 0;
      const std::uint64_t steps = plan::create(s)->shape().batches_of(0);
      const bool last = link + 1 == std::size(worlds);
      // Under `allow` the ranks may end at different steps, so there may be no common last step: stop before
      // it.
      const std::uint64_t stop = last || steps == 0 ? steps : between(0, steps - 1);
      const bool to_the_end = stop == steps;
      for (s.rank = 0; s.rank < s.world_size; ++s.rank) {
        const plan order = *plan::create(s);
        const epoch_share& share = order.shape().of(0);
        for (std::uint64_t step = 0; step < stop && share.first_batch + step < order.batches_per_epoch();
             ++step) {
          for (const std::uint64_t position : order.batch(0, share.first_batch + step)) ++times[position];
        }
        if (to_the_end) repeats += share.padded;
      }
      if (to_the_end) {
        const std::uint64_t left = s.samples - start;
        std::uint64_t taken = 0;
        for (s.rank = 0; s.rank < s.world_size; ++s.rank)
          taken += plan::create(s)->shape().of(0).expected - plan::create(s)->shape().of(0).padded;
        left_out = left - taken;
        break;
      }
      start += stop * s.world_size * s.batch_size;
      REQUIRE(start < s.samples);
    }
    INFO(fmt::format("{} samples, drop_last {}, uneven {}", s.samples, s.drop_last, name_of(s.uneven)));
    std::uint64_t once = 0;
    std::uint64_t again = 0;
    for (const auto& [position, count] : times) {
      REQUIRE(position < s.samples);
      once += 1;
      again += static_cast<std::uint64_t>(count - 1);
    }
    CHECK(again == repeats);
    CHECK(once == s.samples - left_out);
    // Only the rule that drops samples omits any, and always fewer than one step.
    if (!s.drop_last && s.uneven != uneven_rule::drop) CHECK(left_out == 0);
    CHECK(left_out < std::max<std::uint64_t>(1, std::uint64_t{s.world_size} * s.batch_size));
  }
}

TEST_CASE("if world size x batch size stays the same, each full step of the group has the same samples") {
  for (const std::uint64_t start : {0ULL, 5ULL, 24ULL, 77ULL}) {
    std::vector<std::vector<std::uint64_t>> first;
    for (const std::uint32_t world : {1U, 2U, 3U, 4U, 6U, 12U}) {
      plan_settings s{.samples = 1000, .seed = 7, .batch_size = 12 / world, .world_size = world};
      s.entered_epoch = 3;
      s.entered_at = start;
      std::vector<std::vector<std::uint64_t>> steps;
      for (std::uint64_t step = 0; step < (s.samples - start) / 12; ++step) {
        std::vector<std::uint64_t> all;
        for (s.rank = 0; s.rank < world; ++s.rank) {
          const plan order = *plan::create(s);
          const auto batch = order.batch(3, order.shape().of(3).first_batch + step);
          all.insert(all.end(), batch.begin(), batch.end());
        }
        std::ranges::sort(all);
        steps.push_back(std::move(all));
      }
      if (first.empty()) first = steps;
      CHECK(steps == first);
    }
  }
}

TEST_CASE("an epoch entered at the end of a step continues with the batches that would have followed") {
  plan_settings s{.samples = 1000, .seed = 7, .batch_size = 8, .rank = 2, .world_size = 3};
  const plan whole = *plan::create(s);
  s.entered_epoch = 4;
  s.entered_at = std::uint64_t{10} * 3 * 8;
  const plan rest = *plan::create(s);
  REQUIRE(rest.shape().of(4).first_batch == 10);
  CHECK(rest.shape().of(5).first_batch == 0);
  for (std::uint64_t seq = 10; seq < whole.batches_per_epoch(); ++seq)
    CHECK(rest.batch(4, seq) == whole.batch(4, seq));
  CHECK(rest.batch(5, 0) == whole.batch(5, 0));
  const plan again = rest.from_the_beginning();
  CHECK(again.shape() == whole.shape());
  CHECK(again.batch(4, 0) == whole.batch(4, 0));
}

TEST_CASE("a repeat has the position of its original, so that both draw the same replacement") {
  plan_settings s{.samples = 10, .shuffle = false, .batch_size = 4, .rank = 3, .world_size = 4};
  const plan order = *plan::create(s);
  REQUIRE(order.shape().usual.padded == 1);
  CHECK(order.batch(0, 0) == std::vector<std::uint64_t>{3, 7, 1});
  CHECK(order.position(0, 0, 2) == 1);
}

TEST_CASE("an epoch entered beyond its end is refused") {
  plan_settings s{.samples = 10, .batch_size = 4};
  s.entered_epoch = 2;
  s.entered_at = 10;
  const auto no = plan::create(s);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == errc::state_mismatch);
  CHECK(no.error().message == "the saved state is at position 10 of epoch 2, but an epoch has 10 samples");
}
