// Sessions as ranks of a group: equal counts, and resuming a group's state with a different number of ranks.
#include "tests/actors/session/support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <map>

using namespace penstock;
using penstock::testing::quietly;
using penstock::testing::small;

namespace {

struct layout {
  std::uint32_t ranks;
  std::uint32_t batch_size;
};

config rank_of(layout group, std::uint32_t rank) {
  config c = small(1);
  c.dataset.samples = 101;
  c.dataset.bytes_per_sample = byte_size{64};
  c.sampler.epochs = 2;
  c.sampler.world_size = group.ranks;
  c.sampler.rank = rank;
  c.sampler.batch_size = group.batch_size;
  return c;
}

struct group_end {
  std::vector<std::byte> state;
  std::vector<run_report> reports;
};

/// Runs the sessions of all ranks one after another, each for `steps` batches.
group_end run_group(layout group, std::span<const std::byte> from, std::uint64_t steps,
                    std::map<std::pair<std::uint64_t, std::uint64_t>, int>& times) {
  group_end end;
  std::vector<std::vector<std::byte>> states;
  for (std::uint32_t rank = 0; rank < group.ranks; ++rank) {
    session_options options = quietly();
    options.digests = true;
    options.state = from;
    options.batches = steps;
    Session session(rank_of(group, rank), options);
    while (const auto batch = session.next()) {
      for (const std::uint64_t sample : batch->samples()) ++times[{batch->epoch(), sample}];
    }
    states.push_back(session.state());
    CHECK(states.back().size() <= 1024);
    end.reports.push_back(session.report());
  }
  end.state = group_state(states);
  CHECK(end.state.size() <= 1024);
  return end;
}

}  // namespace

TEST_CASE(
    "every sample is delivered while a group grows and shrinks in mid-epoch, and only padding repeats samples") {
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> times;
  std::vector<std::byte> state;
  std::uint64_t repeats = 0;
  std::vector<run_report> last;
  // Each group continues where the previous one stopped: at positions 40, 64 and 88 of epoch 0. The fourth one
  // finishes epoch 0, whose last 13 samples need two repeats for 3 ranks, and stops at position 12 of epoch 1.
  for (const auto& [group, steps] : std::vector<std::pair<layout, std::uint64_t>>{
           {{1, 8}, 5}, {{2, 4}, 3}, {{4, 3}, 2}, {{3, 4}, 3}, {{1, 7}, 1000}}) {
    const group_end end = run_group(group, state, steps, times);
    state = end.state;
    last = end.reports;
    for (const run_report& r : end.reports) {
      CHECK(r.world_size == group.ranks);
      for (const epoch_report& e : r.epochs) {
        CHECK((e.from_position == 0 || !e.digest));
        if (!e.complete) continue;
        repeats += e.padded;
        CHECK(e.delivered + e.failed + e.quarantined == e.expected);
        CHECK(e.expected == end.reports.front().epochs.front().expected);
      }
    }
  }
  CHECK(repeats == 2);
  std::uint64_t extra = 0;
  for (const auto& [sample, count] : times) extra += static_cast<std::uint64_t>(count - 1);
  CHECK(times.size() == 2 * 101);
  CHECK(extra == repeats);
  REQUIRE(last.size() == 1);
  CHECK(last[0].outcome == run_outcome::finished);
  CHECK(last[0].epochs.at(0).epoch == 1);
  CHECK(last[0].epochs.at(0).from_position == 12);
  CHECK(last[0].epochs.at(0).expected == 101 - 12);
}

TEST_CASE(
    "a rank's own state resumes only with its own layout, and a group's with any, even from a partial epoch") {
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> times;
  const auto state = run_group({1, 8}, {}, 5, times).state;
  std::vector<std::byte> own;
  {
    session_options options = quietly();
    options.state = state;
    options.batches = 2;
    Session session(rank_of({2, 4}, 1), options);
    while (session.next()) {
    }
    own = session.state();
  }
  session_options options = quietly();
  options.state = own;
  Session same(rank_of({2, 4}, 1), options);
  const auto batch = same.next();
  REQUIRE(batch);
  CHECK(batch->epoch() == 0);
  Session other(rank_of({4, 4}, 1), options);
  try {
    static_cast<void>(other.next());
    FAIL("accepted");
  } catch (const error& e) {
    CHECK(e.code() == errc::state_mismatch);
    CHECK(std::string(e.what()).find("world_size was 2 and is 4") != std::string::npos);
  }
}

TEST_CASE("an epoch resumed midway starts there each time, but starts at its beginning after an earlier epoch") {
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> times;
  // The group stops after the 13 batches of epoch 0 and one batch of epoch 1.
  const auto state = run_group({1, 8}, {}, 14, times).state;
  session_options options = quietly();
  options.state = state;
  Session session(rank_of({1, 5}, 0), options);
  const auto count = [&](std::uint64_t epoch) {
    std::size_t samples = 0;
    for (const Batch& batch : session.epoch(epoch)) samples += batch.rows();
    return samples;
  };
  CHECK(count(1) == 101 - 8);
  CHECK(count(1) == 101 - 8);
  CHECK(count(0) == 101);
  CHECK(count(1) == 101);
}

TEST_CASE("ranks at different steps have no common state") {
  std::vector<std::vector<std::byte>> states;
  for (const std::uint32_t rank : {0U, 1U}) {
    session_options options = quietly();
    options.batches = 2 + rank;
    Session session(rank_of({2, 4}, rank), options);
    while (session.next()) {
    }
    states.push_back(session.state());
  }
  CHECK_THROWS_AS(group_state(states), error);
}
