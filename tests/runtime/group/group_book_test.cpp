// The books of a group, one scenario each: ranks that meet, are lost and return. group_model_test.cpp covers
// combinations.
#include "tests/runtime/group/small_group.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("no rank hands out batches before all ranks have joined and described the same dataset") {
  small_group g(3);
  g.start(0);
  g.start(2);
  g.run(5s);
  CHECK(g.handing_out().empty());
  CHECK(g.book->missing() == ranks{1});
  g.start(1);
  g.run();
  CHECK(g.book->view().phase == group_phase::describing);
  CHECK(g.handing_out().empty());
  g.describe();
  CHECK(g.handing_out() == ranks{0, 1, 2});
  CHECK(g.book->view().generation == 1);
  CHECK(g.members[2]->incarnation() == 1);
}

TEST_CASE("ranks that disagree all fail within five seconds and name both ranks and both values") {
  small_group g(3);
  SECTION("in a setting") {
    g.cards[2].card.settings = {{"sampler.seed", "7"}};
    g.start_all();
    g.run(5s);
    CHECK(g.all_failed_with(
        "sampler.seed is 1 at rank 0 (host0, pid 1000), but 7 at rank 2 (host2, pid 1002)"));
  }
  SECTION("in the world size") {
    g.cards[1].card.world_size = 4;
    g.start_all();
    g.run(5s);
    CHECK(g.all_failed_with("the world size is 3 at rank 0 (host0, pid 1000), but 4 at rank 1"));
  }
  SECTION("in the version of the protocol") {
    g.cards[0].card.protocol = 8;
    g.cards[1].card.protocol = 9;
    g.start_all();
    g.run(5s);
    CHECK(g.all_failed_with("protocol is 8 at rank 0 (host0, pid 1000), but 9 at rank 1"));
  }
  SECTION("in the use of one GPU by both") {
    g.cards[0].card.device = g.cards[1].card.device = "GPU-1";
    g.start_all();
    g.run(5s);
    CHECK(
        g.all_failed_with("rank 0 (host0, pid 1000) and rank 1 (host1, pid 1001) have the same GPU, GPU-1"));
  }
  SECTION("in the dataset") {
    g.start_all();
    g.run();
    g.members[1]->described({"xyz", 0, 0});
    g.members[0]->described({"abc", 0, 0});
    g.run(5s);
    CHECK(g.all_failed_with("the dataset is abc from position 0 of epoch 0 at rank 0"));
    CHECK(g.all_failed_with("xyz from position 0 of epoch 0 at rank 1"));
  }
  SECTION("in the start position") {
    g.start_all();
    g.run();
    g.members[0]->described({"abc", 0, 0});
    g.members[2]->described({"abc", 0, 80});
    g.run(5s);
    CHECK(g.all_failed_with("from position 80 of epoch 0 at rank 2"));
  }
  SECTION("in which process is rank 1") {
    g.start(0);
    g.start(1);
    g.run(3s);
    member_book twin = g.twin_of(1);
    g.run_beside(twin, 6s);
    g.run(5s);
    CHECK(g.all_failed_with("rank 1 was started twice: pid 1001 on host1 and pid 4711 on host1"));
  }
  CHECK(g.book->view().outcome == group_outcome::failed);
}

TEST_CASE("GPUs that are shared on purpose are accepted") {
  small_group g(2);
  for (member_settings& m : g.cards) {
    m.card.device = "GPU-1";
    m.card.shares_device = true;
  }
  g.start_all();
  g.run();
  CHECK(g.book->view().phase == group_phase::describing);
}

TEST_CASE("a missing rank is named, as are the ranks that have arrived") {
  small_group g(3);
  g.start(0);
  g.start(2);
  g.run(125s);
  CHECK(g.all_failed_with(
      "rank 1 did not arrive within 2m; arrived: rank 0 (host0, pid 1000), rank 2 (host2, pid 1002)"));
}

TEST_CASE("a rank started twice is named even if the time to arrive is short") {
  small_group g(3);
  g.settings.join_timeout = 2s;
  g.book = std::make_unique<group_book>(g.settings, g.now);
  g.start(0);
  g.start(1);
  g.run(500ms);
  member_book twin = g.twin_of(1);
  g.run_beside(twin, 2s);
  CHECK(
      g.all_failed_with("rank 1 was started twice: pid 1001 on host1 and pid 4711 on host1; "
                        "rank 2 did not arrive within 2s; arrived: rank 0"));
}

TEST_CASE("a rank that fails at startup ends the startup of all ranks, and all report its cause") {
  small_group g(3, true);
  g.start_all();
  g.run();
  g.members[2]->fail("out of device memory");
  g.run(5s);
  CHECK(g.all_failed_with("out of device memory"));
  CHECK(g.ends[0]->cause == group_cause{2, "host2", 1002, "out of device memory"});
}

TEST_CASE("a rank that arrives just after the startup has failed learns why before the coordinator exits") {
  small_group g(3);
  g.start(0);
  g.start(1);
  g.run(1s);
  g.members[1]->fail("out of device memory");
  g.run(1s);
  CHECK_FALSE(g.book->may_leave());
  SECTION("it arrives in time") {
    g.start(2);
    g.run(1s);
    REQUIRE(g.ends[2]);
    CHECK(g.ends[2]->cause->cause == "out of device memory");
    CHECK(g.book->may_leave());
  }
  SECTION("it does not arrive") {
    g.run(4s);
    CHECK(g.book->may_leave());
  }
}

TEST_CASE("under fail the loss of a rank ends all ranks with that cause, and the first cause counts") {
  small_group g(4);
  g.begin();
  g.kill(2);
  g.kill(3);
  g.run(5s);
  CHECK(g.all_failed_with("killed by SIGKILL"));
  CHECK(g.ends[0]->cause->rank == 2);
  CHECK(g.book->may_leave());
}

TEST_CASE("under wait the other ranks continue, and the next process of a lost rank takes its place") {
  small_group g(3, true);
  g.begin();
  g.deliver(1, 5);
  g.run();
  g.kill(1);
  g.run(1s);
  CHECK(g.handing_out() == ranks{0, 2});
  g.replace(1, 4);
  g.run();
  CHECK(g.handing_out() == ranks{0, 2});
  g.members[1]->described({"abc", 0, 16});
  g.run();
  CHECK(g.handing_out() == ranks{0, 1, 2});
  CHECK(g.members[1]->incarnation() == 2);
  CHECK(g.book->view().incarnations == ranks{1, 2, 1});
}

TEST_CASE("a lost rank that does not come back fails the group after rejoin_timeout") {
  small_group g(2, true);
  g.begin();
  g.kill(1);
  g.run(590s);
  CHECK_FALSE(g.ends[0]);
  g.run(15s);
  CHECK(g.all_failed_with("killed by SIGKILL, and did not come back within 10m"));
}

TEST_CASE("a disconnected rank stops before it counts as lost, and continues if it was not replaced") {
  small_group g(2, true);
  g.begin();
  g.cut.insert(1);
  while (g.members[1]->may_hand_out(g.now)) {
    CHECK(g.book->missing().empty());
    g.run(100ms);
  }
  g.run(5s);
  CHECK(g.book->missing() == ranks{1});
  g.cut.clear();
  g.run(2s);
  CHECK(g.handing_out() == ranks{0, 1});
  CHECK(g.members[1]->incarnation() == 1);
}

TEST_CASE("a rank that was replaced while it was cut off ends when it is reconnected") {
  small_group g(2, true);
  auto cut_off = g.replace_cut_off(1);
  CHECK(g.members[1]->incarnation() == 2);
  std::optional<end_rank> end;
  for (member_command& c : cut_off->advance(g.now)) {
    if (auto* report = std::get_if<send_report>(&c)) g.book->heard(report->report, g.now);
  }
  for (group_command& c : g.book->advance(g.now)) {
    if (auto* send = std::get_if<send_order>(&c); send != nullptr && send->process == 101)
      cut_off->heard(send->order, g.now);
  }
  for (member_command& c : cut_off->advance(g.now)) {
    if (auto* how = std::get_if<end_rank>(&c)) end = *how;
  }
  REQUIRE(end);
  CHECK(end->cause->cause == "rank 1 (host1, pid 1001) was replaced");
}

TEST_CASE("the next process of rank 0 takes over with what the other ranks know") {
  small_group g(3, true);
  g.begin();
  g.kill(1);
  g.replace(1, 3);
  g.run();
  g.members[1]->described({"abc", 0, 0});
  g.run();
  g.kill(0);
  g.run(1s);
  CHECK(g.handing_out() == ranks{1, 2});
  g.replace(0, 7);
  g.run(1s);
  CHECK(g.book->view().generation == 2);
  CHECK(g.book->view().incarnations == ranks{2, 2, 1});
  CHECK(g.book->view().facts->fingerprint == "abc");
  CHECK(g.handing_out() == ranks{1, 2});
  g.members[0]->described({"abc", 0, 0});
  g.run();
  CHECK(g.handing_out() == ranks{0, 1, 2});
}

TEST_CASE("under fail the loss of rank 0 is reported with its host and pid, however it is detected") {
  small_group g(3);
  g.begin();
  g.kill(0);
  SECTION("its process exits") {
    for (const std::uint32_t r : {1U, 2U}) g.members[r]->coordinator_gone("its process has ended");
    g.run();
  }
  SECTION("it is silent for too long") {
    g.run(11s);
  }
  for (const std::uint32_t r : {1U, 2U}) {
    REQUIRE(g.ends[r]);
    CHECK(in_words(g.ends[r]->cause.value()).starts_with("rank 0 (host0, pid 1000): "));
  }
}

TEST_CASE("a new coordinator lets no new process run while its predecessor may still hand out batches") {
  small_group g(3, true);
  g.begin();
  g.cut.insert(1);
  auto cut_off = std::move(g.members[1]);
  g.cut.clear();
  g.kill(0);
  g.replace(0);
  SECTION("where the launcher does not count processes") {
    g.cards[1].card.process = 77;
    g.start(1);
    while (cut_off->may_hand_out(g.now)) {
      g.run(500ms);
      g.members[0]->described({"abc", 0, 0});
      g.members[1]->described({"abc", 0, 0});
      REQUIRE_FALSE((cut_off->may_hand_out(g.now) && g.members[1]->may_hand_out(g.now)));
    }
    g.run(3s);
    CHECK(g.handing_out() == ranks{0, 1, 2});
  }
  SECTION("but at once where the launcher has ended the previous process") {
    g.replace(1);
    g.run(2s);
    g.members[0]->described({"abc", 0, 0});
    g.members[1]->described({"abc", 0, 0});
    g.run();
    CHECK(g.handing_out() == ranks{0, 1, 2});
  }
}

TEST_CASE("a new process of rank 0 learns from the other ranks how the group has ended") {
  small_group g(3, true);
  g.begin();
  g.cut.insert(2);
  for (auto& m : g.members) m->stream_ended();
  g.run();
  g.cut.clear();
  for (int i = 0; i < 30 && g.members[1]->view().outcome == group_outcome::none; ++i) {
    g.turn();
    g.now += 100ms;
  }
  REQUIRE(g.members[1]->view().outcome == group_outcome::finished);
  REQUIRE_FALSE(g.ends[1]);
  g.kill(0);
  g.replace(0);
  g.turn();
  g.turn();
  CHECK(g.book->view().outcome == group_outcome::finished);
}

TEST_CASE("the next process of a rank cannot continue with another dataset") {
  small_group g(2, true);
  g.begin();
  g.kill(1);
  g.replace(1);
  g.run();
  g.members[1]->described({"xyz", 0, 0});
  g.run(2s);
  CHECK(g.handing_out() == ranks{0});
  REQUIRE(g.ends[1]);
  CHECK(g.ends[1]->cause->cause == "its dataset has the fingerprint xyz, but the group's has abc");
}

TEST_CASE("ranks that all restart at once continue from their own positions, but only with one dataset") {
  const auto start_again = [](small_group& g, const std::string& fingerprint_of_last) {
    g.begin();
    for (const std::uint32_t r : {2U, 1U, 0U}) g.kill(r);
    for (const std::uint32_t r : {0U, 1U, 2U}) g.replace(r, 9 + r);
    g.run();
    for (const std::uint32_t r : {0U, 1U, 2U})
      g.members[r]->described({r == 2 ? fingerprint_of_last : "abc", 0, 360 + std::uint64_t{40} * r});
    g.run();
  };
  SECTION("under wait each has its own position") {
    small_group g(3, true);
    start_again(g, "abc");
    CHECK(g.handing_out() == ranks{0, 1, 2});
  }
  SECTION("another dataset fails them") {
    small_group g(3, true);
    start_again(g, "xyz");
    CHECK(g.all_failed_with("xyz from position 440 of epoch 0 at rank 2"));
  }
  SECTION("under fail all ranks start at one position, even when they are started again") {
    small_group g(3);
    start_again(g, "abc");
    CHECK(g.all_failed_with("from position 400 of epoch 0 at rank 1"));
  }
}

TEST_CASE("a repeated or late report changes nothing") {
  small_group g(2);
  g.start_all();
  member_report early;
  for (member_command& c : g.members[1]->advance(g.now)) {
    if (auto* report = std::get_if<send_report>(&c)) early = report->report;
  }
  g.run();
  g.describe();
  g.cut.insert(1);
  for (int i = 0; i < 30; ++i) {
    g.book->heard(early, g.now);
    g.run(500ms);
  }
  CHECK(g.book->view().outcome == group_outcome::failed);  // rank 1 was silent all the time, so the group fails
}

TEST_CASE("a new coordinator that does not know the group yet renews no lapsed permission") {
  small_group g(3, true);
  g.begin();
  g.run();
  REQUIRE(g.handing_out() == ranks{0, 1, 2});
  g.cut = {1};
  g.run(11s);
  REQUIRE(g.handing_out() == ranks{0, 2});  // another process may have taken the silent rank
  g.kill(0);
  g.cut = {2};  // this rank could report the replacement
  g.replace(0);
  g.run(3s);
  CHECK(g.handing_out() == ranks{2});
}

TEST_CASE("a lapsed permission is renewed at once if the launcher never runs two processes of one rank") {
  const bool one_at_a_time = GENERATE(false, true);
  small_group g(2, true);
  for (auto& rank : g.cards) rank.card.one_at_a_time = one_at_a_time;
  g.begin();
  g.run();
  g.cut = {0, 1};  // the coordinator's process is suspended
  g.run(11s);
  REQUIRE(g.handing_out().empty());
  g.kill(0);
  g.cut.clear();
  g.replace(0);
  g.run(1s);
  g.describe();
  CHECK(g.handing_out() == (one_at_a_time ? ranks{0, 1} : ranks{}));
  g.run(10s);
  CHECK(g.handing_out() == ranks{0, 1});
}

TEST_CASE("a process gives up its place before a newer process of the same rank gets it") {
  small_group g(3, true);
  g.begin();
  g.run();
  const nanoseconds lost_after = g.settings.lost_after;
  member_report newer;  // from a process that took the rank's place under another coordinator
  newer.card = g.cards[1].card;
  newer.card.process = 77;
  newer.incarnation = 2;
  newer.facts = stream_facts{"abc", 0, 0};
  const auto report_for = [&](nanoseconds time) {
    for (nanoseconds passed{0}; passed < time; passed += 1s) {
      ++newer.number;
      g.book->heard(newer, g.now);
      g.run(1s);
    }
  };
  report_for(lost_after - 2s);
  REQUIRE(g.ends[1]);
  CHECK(g.book->missing() == ranks{1});  // a disconnected rank would still hand out
  report_for(4s);
  CHECK(g.book->missing().empty());
}

TEST_CASE("a rank whose place another process has taken stops at once and tells the next coordinator") {
  small_group g(2, true);
  g.begin();
  g.run();
  REQUIRE(g.handing_out() == ranks{0, 1});
  group_order of_another;  // from a group that began while this rank was unreachable
  of_another.view = g.book->view();
  of_another.view.coordinator = 4711;
  of_another.view.generation = 2;
  of_another.number = 1;
  of_another.standing = rank_standing::waiting;
  g.members[1]->heard(of_another, g.now);
  CHECK(g.handing_out() == ranks{0});
  bool says_so = false;
  for (const auto& command : g.members[1]->advance(g.now)) {
    if (const auto* send = std::get_if<send_report>(&command)) says_so = send->report.lapsed;
  }
  CHECK(says_so);
}

TEST_CASE("rank 0 that learns late of an earlier group does not count as replaced in it") {
  small_group g(2, true);
  g.begin();
  member_report earlier;  // the rank was disconnected when that group's coordinator ended
  earlier.card = g.cards[1].card;
  earlier.card.process = 77;
  earlier.incarnation = 1;
  earlier.view.generation = 2;
  earlier.view.coordinator = 78;
  earlier.view.incarnations = {2, 1};
  for (int i = 0; i < 3; ++i) {
    ++earlier.number;
    g.book->heard(earlier, g.now);
    g.run(1s);
  }
  CHECK(g.handing_out() == ranks{0, 1});
  CHECK(g.members[0]->incarnation() == 3);
}

TEST_CASE("orders of an earlier coordinator are ignored") {
  small_group g(2, true);
  g.begin();
  group_order late;
  late.view = g.book->view();
  late.number = 1'000'000;
  late.view.outcome = group_outcome::failed;
  late.standing = rank_standing::member;
  g.kill(0);
  g.replace(0);
  g.run(2s);
  REQUIRE(g.members[1]->view().generation == 2);
  g.members[1]->heard(late, g.now);
  CHECK(g.members[1]->view().outcome == group_outcome::none);
}

TEST_CASE("a single rank is a group") {
  small_group g(1, true, true);
  g.start(0);
  g.run();
  g.describe();
  g.run();
  CHECK(g.handing_out() == ranks{0});
}
