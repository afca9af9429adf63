#include "runtime/schedule/group_state.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::schedule;

namespace {

stream_state of_rank(std::uint32_t rank, std::uint32_t world, std::uint64_t batch = 5) {
  stream_state s;
  s.identity = {1234, 4, rank, world, true, false, "abcdef0123456789", "gpu.dtype=float16"};
  if (world > 1) s.identity.uneven = uneven_rule::pad;
  s.epoch = 2;
  s.next_batch = batch;
  s.delivered = batch * 4;
  for (std::uint64_t b = 0; b < batch; ++b) s.digests.add(b);
  return s;
}

std::vector<stream_state> of_ranks(std::uint32_t world, std::uint64_t batch = 5) {
  std::vector<stream_state> all;
  for (std::uint32_t rank = 0; rank < world; ++rank) all.push_back(of_rank(rank, world, batch));
  return all;
}

std::string refusal(const std::vector<stream_state>& states) {
  const auto made = group_state(states);
  if (made) return "accepted";
  CHECK(made.error().code == errc::state_mismatch);
  return made.error().message;
}

}  // namespace

TEST_CASE("a group's state is at the position that all ranks have reached") {
  auto states = of_ranks(3);
  states[0].quarantined_samples = {3, 9};
  states[2].quarantined_samples = {1, 9};
  std::swap(states[0], states[1]);
  const auto group = group_state(states);
  REQUIRE(group);
  CHECK(group->identity.of_group);
  CHECK(group->identity.rank == 0);
  CHECK(group->epoch == 2);
  CHECK(group->start == 5 * 4 * 3);
  CHECK(group->next_batch == 0);
  CHECK(group->delivered == 0);
  CHECK(group->digests.count() == 0);
  CHECK(group->quarantined_samples == std::vector<std::uint64_t>{1, 3, 9});
  CHECK(*parse_state(serialise(*group)) == *group);
  CHECK(serialise(*group).size() <= strict_state_bytes_max);
}

TEST_CASE(
    "a rank that has delivered batches early is refused, and the slowest rank's position excludes them") {
  auto states = of_ranks(2);
  states[1].early = 0b11;
  CHECK(refusal(states).find("the state of rank 1 counts 2 batches delivered early") != std::string::npos);
  const auto slowest = group_state_of_slowest(states);
  REQUIRE(slowest);
  CHECK(slowest->start == 5 * 4 * 2);
  CHECK(slowest->early == 0);
}

TEST_CASE("ranks that resume a group's state continue its counts") {
  auto states = of_ranks(2);
  for (stream_state& s : states) s.start = 60;
  CHECK(group_state(states)->start == 60 + 5 * 4 * 2);
}

TEST_CASE("ranks at different steps have a group state at the position of the slowest one") {
  auto states = of_ranks(3);
  states[1] = of_rank(1, 3, 2);
  states[2].epoch = 3;
  states[2].next_batch = 0;
  states[0].quarantined_samples = {7};
  const auto group = group_state_of_slowest(states);
  REQUIRE(group);
  CHECK(group->epoch == 2);
  CHECK(group->start == 2 * 4 * 3);
  CHECK(group->quarantined_samples == std::vector<std::uint64_t>{7});
  CHECK(*group_state_of_slowest(of_ranks(3)) == *group_state(of_ranks(3)));
  states.pop_back();
  CHECK_FALSE(group_state_of_slowest(states));
  CHECK_FALSE(group_state_of_slowest({}));
}

TEST_CASE("one rank alone is a group, too") {
  CHECK(group_state(of_ranks(1))->start == 20);
}

TEST_CASE("a group's state resumes with another rank, world size or batch size, and with no other change") {
  const stream_state group = *group_state(of_ranks(3));
  stream_identity other = of_rank(4, 7).identity;
  other.batch_size = 100;
  other.uneven = uneven_rule::drop;
  CHECK(check_same_stream(group.identity, other));
  other.seed = 5;
  CHECK_FALSE(check_same_stream(group.identity, other));
  CHECK_FALSE(check_same_stream(of_rank(0, 3).identity, of_rank(1, 3).identity));
}

TEST_CASE("a group's state needs the states of all ranks at one step") {
  CHECK(refusal({}) == "there is no state of any rank");
  auto states = of_ranks(3);
  states.pop_back();
  CHECK(refusal(states) == "the state of rank 2 is missing: there are 2 states, but the world has 3 ranks");
  states = of_ranks(3);
  states[1] = states[0];
  CHECK(refusal(states) == "there are two states of rank 0");
  states = of_ranks(2);
  states[1] = of_rank(1, 2, 6);
  CHECK(refusal(states) ==
        "the ranks are not at the same step: rank 0 is at position 40 of epoch 2, but rank 1 is at position "
        "48 of epoch 2");
  states = of_ranks(2);
  states[1].identity.seed = 7;
  CHECK(refusal(states) ==
        "the states of rank 0 and rank 1 belong to different streams: the saved state belongs to another "
        "stream: seed was 1234 and is 7");
  states = of_ranks(2);
  states[1].identity.world_size = 3;
  CHECK(refusal(states).find("world_size was 2 and is 3") != std::string::npos);
  states = of_ranks(2);
  states.push_back(of_rank(0, 1));
  CHECK(refusal(states).find("world_size was 2 and is 1") != std::string::npos);
}

TEST_CASE("ranks resumed from a group's state that have delivered no batch return the same state") {
  const stream_state group = *group_state(of_ranks(3));
  CHECK(*group_state(std::vector{group, group}) == group);
  // One of the two has already opened its stream and returns its own state.
  stream_state own = of_rank(1, 2, 0);
  own.start = group.start;
  CHECK(group_state(std::vector{group, own})->start == group.start);
  own.next_batch = 1;
  CHECK(refusal({group, own}).find("not at the same step") != std::string::npos);
}
