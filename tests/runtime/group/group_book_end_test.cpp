// The books of a group: how it stops and finishes, and what happens to ranks that are lost meanwhile.
#include "tests/runtime/group/small_group.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("a stop freezes all ranks, and all deliver up to the step of the rank that is furthest") {
  small_group g(3);
  g.begin();
  g.deliver(0, 3);
  g.deliver(1, 5);
  g.deliver(2, 4);
  g.members[2]->want_stop();
  g.run();
  CHECK(g.book->view().limit == 5);
  CHECK(g.handing_out() == ranks{0, 2});
  g.deliver(0, 2);
  g.deliver(2, 1);
  CHECK(g.handing_out().empty());
  g.run(1s);
  for (const auto& end : g.ends) {
    REQUIRE(end);
    CHECK(end->how == group_outcome::stopped);
  }
}

TEST_CASE("a rank that leaves before the others is lost at its step") {
  small_group g(2);
  g.begin();
  g.deliver(1, 6);
  g.members[1]->leave();
  g.run(1s);
  REQUIRE(g.ends[0]);
  CHECK(g.ends[0]->cause->cause == "left at step 6");
}

TEST_CASE("a group has finished when all streams have ended, and no rank leaves before all know that") {
  small_group g(2);
  g.begin();
  g.members[0]->stream_ended();
  g.run(3s);
  CHECK_FALSE(g.ends[0]);
  g.members[1]->stream_ended();
  g.run(1s);
  CHECK(g.ends[0]->how == group_outcome::finished);
  CHECK(g.ends[1]->how == group_outcome::finished);
  CHECK(g.book->may_leave());
}

TEST_CASE("a rank lost after its last delivery restarts before the group has finished") {
  small_group g(3, true);
  g.begin();
  for (std::uint32_t r = 0; r < 3; ++r) g.deliver(r, 3);
  g.members[1]->stream_ended();
  g.run();
  g.kill(1);
  for (const std::uint32_t r : {0U, 2U}) g.members[r]->stream_ended();
  g.run(1s);
  CHECK(g.book->view().outcome == group_outcome::none);
  CHECK_FALSE(g.book->may_leave());
  g.replace(1, 2);  // rank 1's launcher did not know of the last batch
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run();
  CHECK(g.handing_out() == std::vector<std::uint32_t>{1});
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run();
  CHECK(g.book->may_leave());
  CHECK(g.all_finished());
}

TEST_CASE(
    "a rank lost just after its group has finished delivers its remaining batches, and no rank waits for it") {
  small_group g(3, true);
  g.begin();
  for (std::uint32_t r = 0; r < 3; ++r) {
    g.deliver(r, 3);
    g.members[r]->stream_ended();
  }
  g.cut.insert(1);
  for (const auto& report : g.members[1]->advance(g.now))
    g.book->heard(std::get<send_report>(report).report, g.now);  // the final report of rank 1
  g.run();
  CHECK(g.book->view().outcome == group_outcome::finished);
  g.kill(1);
  g.cut.clear();
  g.run(1s);
  CHECK_FALSE(g.book->may_leave());  // the next process of rank 1 would find no other rank
  g.replace(1, 2);
  g.run();
  CHECK(g.book->may_leave());
  g.book.reset();
  CHECK(g.members[1]->delivers_the_rest());
  g.run(20s);
  CHECK_FALSE(g.ends[1]);
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run(6s);
  REQUIRE(g.ends[1]);
  CHECK(g.ends[1]->how == group_outcome::finished);
}

TEST_CASE(
    "a rank whose process exits unnoticed after its last delivery is replaced after the group has finished") {
  small_group g(3, true);
  g.begin();
  for (std::uint32_t r = 0; r < 3; ++r) g.deliver(r, 3);
  g.members[1]->stream_ended();
  g.run();
  g.members[1].reset();            // the rank's link does not report the exit
  constexpr bool counted = false;  // nor does the rank's launcher count starts
  SECTION("its next process arrives before the group has finished") {
    g.replace(1, 2, counted);
    g.run();
  }
  for (const std::uint32_t r : {0, 2}) g.members[r]->stream_ended();
  SECTION("its next process arrives after that") {
    g.run();
    g.replace(1, 2, counted);
  }
  g.run(1500ms);  // until the rank reports again
  CHECK(g.book->view().outcome == group_outcome::finished);
  CHECK_FALSE(g.ends[1]);
  CHECK(g.members[1]->delivers_the_rest());
  g.deliver(1);
  g.members[1]->stream_ended();
  g.run(6s);
  CHECK(g.all_finished());
}

TEST_CASE("a replaced process does not get its rank back when the group has finished") {
  small_group g(2, true);
  g.begin();
  g.run();
  g.cut = {1};
  g.run(11s);  // lost
  auto first = std::move(g.members[1]);
  const std::uint64_t process = g.cards[1].card.process;
  g.cut.clear();
  g.replace(1, 0, false);
  g.run();
  g.describe();
  g.run();
  for (std::uint32_t r = 0; r < 2; ++r) {
    g.deliver(r, 3);
    g.members[r]->stream_ended();
  }
  g.run();
  REQUIRE(g.book->view().outcome == group_outcome::finished);
  for (const auto& command : first->advance(g.now)) {
    if (const auto* report = std::get_if<send_report>(&command)) g.book->heard(report->report, g.now);
  }
  bool refused = false;
  for (const auto& command : g.book->advance(g.now)) {
    const auto* order = std::get_if<send_order>(&command);
    if (order == nullptr || order->process != process) continue;
    refused = order->order.standing == rank_standing::refused;
    first->heard(order->order, g.now);
  }
  CHECK(refused);
  CHECK_FALSE(first->delivers_the_rest());
}

TEST_CASE(
    "a rank that delivers its remaining batches continues while the coordinator does not hear from it") {
  small_group g(2, true);
  g.begin();
  g.run();
  g.cut = {1};  // when rank 1 died, its launcher did not know of its last batches
  g.deliver(1);
  for (const std::uint32_t r : {0, 1}) g.members[r]->stream_ended();
  g.cut.clear();
  g.run();
  REQUIRE(g.book->view().outcome == group_outcome::finished);
  g.kill(1);
  g.replace(1);
  g.run();
  REQUIRE(g.members[1]->delivers_the_rest());
  group_order lost;
  lost.view = g.members[1]->view();
  lost.number = 1'000'000;
  lost.standing = rank_standing::lost;
  g.members[1]->heard(lost, g.now);
  CHECK(g.members[1]->delivers_the_rest());
  CHECK_FALSE(g.ends[1]);
}
