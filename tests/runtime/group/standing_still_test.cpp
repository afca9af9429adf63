// The books of a group with suspended processes, one scenario each (rules G23-G26). group_model_test.cpp
// covers combinations, group_pauses_test.py real processes.
#include "tests/runtime/group/small_group.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

const group_cause silent_rank_0{0, "host0", 1000, "nothing heard from it for 10s"};

/// A rank's next report.
std::optional<member_report> next_report(member_book& rank, steady_time now) {
  std::optional<member_report> last;
  for (member_command& c : rank.advance(now)) {
    if (auto* report = std::get_if<send_report>(&c)) last = std::move(report->report);
  }
  return last;
}

}  // namespace

TEST_CASE("no rank loses its place while all ranks are paused, however long") {
  for (const bool waits : {false, true}) {
    small_group g(3, waits);
    g.begin();
    for (const nanoseconds pause : {nanoseconds(11s), nanoseconds(1h)}) {
      g.now += pause;
      CHECK(g.handing_out().empty());
      g.run(5s);
      CHECK(g.handing_out() == ranks{0, 1, 2});
    }
  }
}

TEST_CASE("a pause while ranks arrive does not count as waiting for the missing rank") {
  small_group g(2);
  g.start(0);
  g.run(100s);
  g.now += 1h;
  g.run(5s);
  CHECK_FALSE(g.ends[0]);
  g.start(1);
  g.run();
  CHECK(g.book->view().phase == group_phase::describing);
}

TEST_CASE("a rank that gives up sends the reason in its last report, and rank 0 reports the same cause") {
  small_group g(3);
  g.begin();
  std::optional<member_report> last;
  while (!last || !last->failed) {
    last = next_report(*g.members[1], g.now += 500ms);
    REQUIRE(g.now < steady_time(2h));
  }
  CHECK(last->failed == silent_rank_0);
  CHECK(g.members[1]->ended());
  // The process with the book was suspended meanwhile.
  g.book->heard(*last, g.now);
  g.book->gone(g.cards[1].card.process, "its process has ended", g.now);
  g.run(1s);
  CHECK(g.book->view().cause == silent_rank_0);
  REQUIRE(g.ends[0]);
  CHECK(g.ends[0]->cause == silent_rank_0);
}

TEST_CASE("a replaced process that gives up does not end the group") {
  small_group g(2, true);
  auto cut_off = g.replace_cut_off(1);
  g.describe();
  std::optional<member_report> last;
  while (!last || !last->failed) {
    last = next_report(*cut_off, g.now += 500ms);
    g.run(100ms);
  }
  g.book->heard(*last, g.now);
  g.run(1s);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("a suspended rank names itself as the cause if the group has closed its link meanwhile") {
  small_group g(2);
  g.begin();
  g.now += 1h;
  auto& rank = *g.members[1];
  std::optional<group_cause> expected = silent_rank_0;
  SECTION("or if the link is only silent") {}
  SECTION("with the cause that the other ranks name") {
    rank.link_lost("the connection was closed", true);
    expected = group_cause{1, "host1", 1001, "nothing heard from it for 10s"};
  }
  SECTION("but not if it has been answered since") {
    g.run(1s);
    rank.link_lost("the connection was closed", true);
  }
  std::optional<end_rank> end;
  while (!end) {
    for (member_command& c : rank.advance(g.now += 500ms)) {
      if (auto* how = std::get_if<end_rank>(&c)) end = *how;
    }
  }
  CHECK(end->cause == expected);
}

TEST_CASE("a suspended rank 0 names itself as the cause for ranks that left without a message") {
  small_group g(3);
  g.begin();
  g.now += 1h;
  g.cut = {1, 2};
  group_cause expected = silent_rank_0;
  SECTION("because they did not hear from it and left") {
    for (const std::uint32_t r : {1U, 2U}) g.book->link_closed(g.cards[r].card.process);
  }
  SECTION("but not if they are only silent") {
    expected = group_cause{1, "host1", 1001, "nothing heard from it for 10s"};
  }
  g.run(12s);
  REQUIRE(g.ends[0]);
  CHECK(g.ends[0]->cause == expected);
}

TEST_CASE("a process that is stopped in a debugger is not lost") {
  small_group g(2);
  g.begin();
  g.cut.insert(1);
  for (int i = 0; i < 60; ++i) {
    g.book->held(g.cards[1].card.process, g.now);
    g.members[1]->coordinator_held(g.now);
    g.run(1s);
  }
  CHECK(g.book->missing().empty());
  CHECK_FALSE(g.ends[1]);
  CHECK(g.handing_out() == ranks{0});  // it must not hand out without permission
  g.cut.clear();
  g.run(2s);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("a rank that cannot join reports the cause if it knows one") {
  small_group g(2);
  g.book.reset();
  const auto cause_of = [&](std::uint32_t rank) {
    g.run(125s);
    REQUIRE(g.ends[rank]);
    return in_words(g.ends[rank]->cause.value());
  };
  SECTION("a rank") {
    g.start(1);
    g.members[1]->link_lost("connecting: Connection refused (127.0.0.1:4711)", false);
    CHECK(cause_of(1) ==
          "rank 0: cannot be reached by rank 1 (host1, pid 1001) within 2m: connecting: Connection refused "
          "(127.0.0.1:4711)");
  }
  SECTION("rank 0") {
    g.start(0);
    g.members[0]->link_lost("connecting: No route to host", false);
    CHECK(cause_of(0) ==
          "rank 0 (host0, pid 1000): cannot connect to its own address, where the group meets, within 2m: "
          "connecting: No route "
          "to host");
  }
  SECTION("rank 0, whose coordinator has refused a peer and was too busy to answer its own rank") {
    g.start(0);
    g.members[0]->peer_refused("127.0.0.1:40001 (another secret)");
    CHECK(cause_of(0) ==
          "rank 0 (host0, pid 1000): cannot connect to its own address, where the group meets, within 2m; "
          "refused: "
          "127.0.0.1:40001 (another secret)");
  }
  SECTION("rank 0 without an address") {
    g.start(0);
    g.members[0]->cannot_listen("listening at 127.0.0.1:4711: Address already in use");
    g.members[0]->link_lost("the coordinator at 127.0.0.1:4711: it belongs to another group", false);
    CHECK(
        cause_of(0) ==
        "rank 0 (host0, pid 1000): cannot listen for the other ranks within 2m: listening at 127.0.0.1:4711: "
        "Address already in use");
  }
}
