// The books of a group: communicators, and the steps agreed with them.
#include "tests/runtime/group/small_group.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("when a rank is lost, all ranks abort the communicator and make a new one with a higher number") {
  small_group g(3, true, true);
  g.begin();
  g.run();
  REQUIRE(g.made.size() == 3);
  const std::uint64_t first = g.made[0].second;
  CHECK(g.members[0]->may_communicate());
  CHECK(g.handing_out() == ranks{0, 1, 2});
  g.kill(1);
  g.run(1s);
  CHECK(g.aborted == std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, first}, {2, first}});
  CHECK(g.handing_out().empty());  // a rank cannot take a step alone
  g.replace(1);
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run(1s);
  CHECK(g.handing_out() == ranks{0, 1, 2});
  REQUIRE(g.made.size() == 6);
  CHECK(g.made[5].second > first);
}

TEST_CASE(
    "a higher communicator number of another coordinator breaks the current communicator, and the next is higher still") {
  small_group g(3, true, true);
  g.begin();
  g.run();
  REQUIRE(g.made.size() == 3);
  const std::uint64_t first = g.made[0].second;
  member_report stray;  // from a process that was disconnected and meanwhile had another coordinator
  stray.card = g.cards[1].card;
  stray.card.process = 77;
  stray.number = 1;
  stray.view.generation = 1;
  stray.view.coordinator = 55;
  stray.view.communicator = first + 1;
  g.book->heard(stray, g.now);
  g.run(1s);
  CHECK(g.aborted ==
        std::vector<std::pair<std::uint32_t, std::uint64_t>>{{0, first}, {1, first}, {2, first}});
  REQUIRE(g.made.size() == 6);
  CHECK(g.made.back().second > first + 1);
  for (const auto& m : g.members) CHECK(m->may_communicate());
}

TEST_CASE("a finished rank that exits fails a group with common steps, and no other group") {
  for (const bool common : {true, false}) {
    small_group g(2, false, true);
    g.settings.common_steps = common;
    g.book = std::make_unique<group_book>(g.settings, g.now);
    g.start_all();
    g.run();
    g.describe();
    CHECK(g.members[0]->is_in());
    g.members[1]->delivered(16);
    g.members[1]->stream_ended();
    g.run(1s);
    g.kill(1);
    g.run(11s);
    CHECK(g.ends[0].has_value() == common);
    if (common) CHECK(g.all_failed_with("killed by SIGKILL"));
  }
}

TEST_CASE("finished ranks that exit do not fail a rank whose program finishes slowly") {
  small_group g(2, false, true);
  g.begin();
  g.run();
  for (auto& m : g.members) m->delivered(16);
  for (auto& m : g.members) m->held({16});
  g.run();
  g.members[1]->stream_ended();
  g.run(1s);
  g.kill(1);
  g.run(60s);
  CHECK_FALSE(g.ends[0].has_value());
  g.members[0]->stream_ended();
  g.run(1s);
  REQUIRE(g.ends[0].has_value());
  CHECK(g.ends[0]->how == group_outcome::finished);
}

TEST_CASE("an asynchronous error in one rank's communicator aborts it on all ranks") {
  small_group g(2, false, true);
  g.begin();
  g.run();
  const std::uint64_t first = g.made.at(0).second;
  g.members[1]->communicator_broken(first, "remote error");
  CHECK_FALSE(g.members[1]->may_communicate());
  g.run(1s);
  CHECK(g.aborted.size() == 2);
  CHECK(g.made.size() == 4);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("when one rank has finished, the others keep their communicator, but a broken one is not remade") {
  small_group g(2, true, true);
  g.begin();
  g.run();
  const std::uint64_t first = g.made.at(0).second;
  for (auto& m : g.members) m->delivered(16);
  for (auto& m : g.members) m->held({16});
  g.run();
  REQUIRE(g.book->view().agreed == 16);
  g.members[1]->stream_ended();
  g.run(1s);
  CHECK(g.members[0]->may_communicate());
  // No new communicator is made without that rank.
  g.members[0]->communicator_broken(first, "remote error");
  g.run(1s);
  CHECK(g.made.size() == 2);
  g.members[0]->stream_ended();
  g.run(1s);
  REQUIRE(g.ends[0].has_value());
  CHECK(g.ends[0]->how == group_outcome::finished);
}

TEST_CASE("a step is agreed once every rank has a snapshot of it, and stays agreed") {
  small_group g(3, true, true);
  g.begin();
  g.run();
  g.members[0]->held({16, 20, 32});
  g.members[1]->held({16, 32});
  g.run();
  CHECK(g.book->view().agreed == 0);
  g.members[2]->held({16, 20});
  g.run();
  CHECK(g.book->view().agreed == 16);
  CHECK(g.members[1]->view().agreed == 16);
  g.members[2]->held({});
  g.run();
  CHECK(g.book->view().agreed == 16);
}

TEST_CASE(
    "while a new communicator is made no step is agreed, except those that a returning rank had acknowledged") {
  small_group g(2, true, true);
  g.begin();
  g.run();
  g.members[0]->held({16, 32});
  g.run();
  g.kill(1);
  g.run();
  g.replace(1);
  g.members[1]->held({32});
  g.run();
  CHECK(g.book->view().agreed == 0);
  g.members[1]->begins_at(16);
  g.members[1]->held({});
  g.members[1]->described({"abc", 0, 0});
  g.run(1s);
  CHECK(g.book->view().agreed == 16);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("a restarted rank may deliver agreed steps again without a communicator") {
  small_group g(2, true, true);
  g.begin();
  g.run();
  for (auto& m : g.members) m->held({16});
  g.run();
  REQUIRE(g.book->view().agreed == 16);
  g.kill(1);
  g.run();
  CHECK(g.members[0]->right()->limit == 16);
  g.members[0]->delivered(16);
  CHECK_FALSE(g.members[0]->right());
}

TEST_CASE("two coordinators that each started a group give their communicators different numbers") {
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 2; ++i) {
    small_group g(2, true, true);
    if (i == 1) g.replace(0);  // no reachable rank knows the other group
    g.begin();
    g.run();
    REQUIRE(g.book->view().generation == 1);
    numbers.push_back(g.book->view().communicator);
  }
  CHECK(numbers[0] != numbers[1]);
}
