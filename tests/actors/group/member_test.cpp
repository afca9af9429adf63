// The member actor as a script: the coordinator's orders come in, reports go out, and the gate follows.
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// A rank before it has joined.
struct lone_rank {
  explicit lone_rank(bool waits_for_lost = false) : rank(world, card(1), waits_for_lost) {}
  deterministic_system world;
  rank_stage rank;
};

/// A rank that may hand out batches.
struct running_rank : lone_rank {
  explicit running_rank(bool waits_for_lost = false) : lone_rank(waits_for_lost) {
    rank.say(join_group{""});
    rank.answer(group_phase::running, true);
  }
};

/// A rank of a group that replaces lost ranks.
struct replaceable_rank : running_rank {
  replaceable_rank() : running_rank(true) {}
};

group_order over(group_outcome how, std::optional<group_cause> cause = {}) {
  group_order order;
  order.view.generation = 1;
  order.view.coordinator = 100;
  order.view.phase = group_phase::over;
  order.view.outcome = how;
  order.view.cause = std::move(cause);
  order.number = 1;
  order.standing = rank_standing::member;
  return order;
}

}  // namespace

TEST_CASE_METHOD(lone_rank, "a rank sends nothing before its device is open") {
  world.pass(5s);
  CHECK(rank.wire->sent.empty());
  rank.say(join_group{"GPU-7"});
  REQUIRE(rank.wire->sent.size() == 1);
  CHECK(rank.last().card.device == "GPU-7");
  CHECK(rank.news.joins == 0);
  CHECK(rank.news.status.waits_for == "rank 0 at @somewhere");
}

TEST_CASE_METHOD(lone_rank,
                 "workers may start once all ranks have joined, and batches pass once their datasets agree") {
  rank.say(join_group{""});
  rank.answer(group_phase::describing);
  CHECK(rank.news.joins == 1);
  CHECK_FALSE(rank.gate->begun());
  rank.say(stream_described{{"f00d", 0, 0}});
  CHECK(rank.last().facts == stream_facts{"f00d", 0, 0});
  CHECK_FALSE(rank.hand_out());
  rank.answer(group_phase::running, true);
  CHECK(rank.gate->begun());
  CHECK(rank.news.moves > 0);
  CHECK(rank.hand_out() == 1);
}

TEST_CASE_METHOD(lone_rank,
                 "the next report repeats what the group has agreed on, because a new coordinator may need it") {
  rank.say(join_group{""});
  rank.answer(group_phase::describing);
  rank.answer(group_phase::running, true);
  CHECK(rank.last().view.phase == group_phase::running);
  const std::size_t before = rank.wire->sent.size();
  rank.say(link_lost{"the connection was closed"});
  CHECK(rank.wire->sent.size() == before + 1);
}

TEST_CASE_METHOD(replaceable_rank,
                 "in a group that replaces lost ranks, a rank that has finished stays until the group ends") {
  rank.say(stream_delivered{});
  rank.say(leave_group{});
  rank.answer(group_phase::running, true);
  world.pass(3s);
  CHECK(rank.news.gone == 0);
}

TEST_CASE("a rank that arrives after its group has finished delivers the rest alone") {
  lone_rank it(true);
  auto& [world, rank] = it;
  rank.say(join_group{""});
  group_order finished = over(group_outcome::finished);
  finished.heard = 1;
  rank.order(finished);
  CHECK(rank.news.joins == 1);
  rank.say(stream_described{{"f00d", 0, 7}});
  CHECK(rank.gate->begun());
  rank.say(link_lost{"rank 0 has ended"});
  world.pass(60s);
  CHECK(rank.hand_out());
  CHECK(rank.news.outcome == group_outcome::none);
  rank.say(stream_delivered{});
  world.pass(6s);
  CHECK(rank.news.outcome == group_outcome::finished);
}

TEST_CASE_METHOD(
    running_rank,
    "a rank that gets no answers stops handing out batches, and continues when answers arrive again") {
  CHECK(rank.hand_out());
  world.pass(9s);
  CHECK(rank.hand_out());
  CHECK(rank.news.status.waits_for.empty());
  world.pass(1s);
  CHECK_FALSE(rank.hand_out());
  CHECK(rank.news.status.waits_for == "rank 0 to answer: the right to hand out batches has lapsed");
}

TEST_CASE_METHOD(running_rank,
                 "a permission that lapses and is extended between two steps of the member wakes the scheduler") {
  CHECK(rank.hand_out());
  CHECK_FALSE(rank.hand_out(10s));  // the permission lapses between two steps of the member, which never notices
  const int before = rank.news.moves;
  rank.answer(group_phase::running, true);
  CHECK(rank.hand_out());
  CHECK(rank.news.moves == before + 1);
  rank.answer(group_phase::running, true);
  CHECK(rank.news.moves == before + 1);  // no batch waits for the permission, so nothing needs to wake
}

TEST_CASE_METHOD(running_rank, "a dead owner's batch that waits for a lapsed permission passes when the group has ended") {
  REQUIRE(rank.hand_out() == 1);
  REQUIRE(rank.gate->hand_out(1, rank.actor_time() + 10s) == gate_answer::wait);
  const int before = rank.news.moves;
  group_order end = over(group_outcome::stopped);
  end.number = 2;
  end.everybody_knows = true;
  rank.order(end);
  REQUIRE(rank.news.outcome == group_outcome::stopped);
  CHECK(rank.news.moves > before);
  CHECK(rank.gate->hand_out(1, rank.actor_time()) == gate_answer::go);
}

TEST_CASE_METHOD(running_rank, "reports are sent at least every beat, with the number of steps handed out") {
  REQUIRE(rank.hand_out() == 1);
  const std::size_t before = rank.wire->sent.size();
  world.pass(4s);
  CHECK(rank.wire->sent.size() >= before + 3);
  CHECK(rank.last().steps == 1);
}

TEST_CASE_METHOD(running_rank,
                 "a stopping rank freezes at its exact count, then continues up to the common step") {
  REQUIRE(rank.hand_out() == 1);
  rank.answer(group_phase::stopping, true);
  CHECK(rank.last().frozen);
  CHECK(rank.last().steps == 1);
  CHECK_FALSE(rank.hand_out());
  rank.answer(group_phase::stopping, true, 2);
  CHECK(rank.hand_out() == 2);
  CHECK_FALSE(rank.hand_out());
  rank.say(limit_reached{});
  CHECK(rank.last().steps == 2);
  CHECK(rank.news.status.stop_at == 2);
}

TEST_CASE_METHOD(lone_rank,
                 "a rank that fails before its device is open joins the group to report the failure") {
  rank.say(session_failed{"there is no GPU 7"});
  REQUIRE(!rank.wire->sent.empty());
  CHECK(rank.last().failed == group_cause{1, "node7", 4001, "there is no GPU 7"});
}

TEST_CASE_METHOD(lone_rank,
                 "a rank that has failed stays until the group knows why, although its session is closed") {
  rank.say(session_failed{"there is no GPU 7"});
  rank.say(stop_group{});
  rank.say(leave_group{});
  world.pass(1s);
  CHECK(rank.last().failed == group_cause{1, "node7", 4001, "there is no GPU 7"});
  CHECK_FALSE(rank.last().left);
  CHECK(rank.news.gone == 0);
  SECTION("it learns that the group has failed") {
    rank.order(over(group_outcome::failed, group_cause{1, "node7", 4001, "there is no GPU 7"}));
    world.pass(1s);
  }
  SECTION("no coordinator answers") {
    world.pass(5s);
  }
  CHECK(rank.news.gone == 1);
  CHECK(rank.news.outcome == group_outcome::failed);
}

TEST_CASE_METHOD(lone_rank, "a failure of the group ends the session with its first cause") {
  rank.say(join_group{""});
  const group_cause first{0, "node6", 17, "its process has ended"};
  rank.order(over(group_outcome::failed, first));
  CHECK(rank.news.outcome == group_outcome::failed);
  CHECK(rank.news.cause == first);
  CHECK(rank.last().view.outcome == group_outcome::failed);
  CHECK(rank.gate->hand_out_next(rank.actor_time()) == gate_answer::over);
  REQUIRE(rank.news.status.first_cause);
  CHECK(rank.news.status.first_cause->pid == 17);
  rank.say(leave_group{});
  world.pass(1s);
  CHECK(rank.news.gone == 1);
  CHECK(rank.wire->stopped);
}

TEST_CASE_METHOD(running_rank, "a rank that closes too early says at which step it leaves") {
  REQUIRE(rank.hand_out() == 1);
  rank.say(leave_group{});
  CHECK(rank.last().left);
  CHECK(rank.last().steps == 1);
  world.pass(1s);
  CHECK(rank.news.gone == 1);
}

TEST_CASE_METHOD(running_rank, "a rank that has finished leaves once the others know") {
  rank.say(stream_delivered{});
  CHECK(rank.last().stream_over);
  rank.say(leave_group{});
  CHECK_FALSE(rank.last().left);
  CHECK(rank.news.gone == 0);
  rank.answer(group_phase::running, true);
  CHECK(rank.news.gone == 1);
}

TEST_CASE_METHOD(running_rank, "a rank that has finished leaves even without an answer") {
  rank.say(stream_delivered{});
  rank.say(leave_group{});
  world.pass(3s);
  CHECK(rank.news.gone == 1);
}

TEST_CASE_METHOD(lone_rank, "a rank that is stopped before it has met any other ends alone") {
  rank.say(stop_group{});
  CHECK(rank.news.outcome == group_outcome::stopped);
}

TEST_CASE_METHOD(lone_rank, "a rank that cannot make a link fails with the reason") {
  rank.say(join_group{""});
  rank.say(links_refused{{errc::config, "there is no OpenSSL", 0}});
  CHECK(rank.news.outcome == group_outcome::failed);
  REQUIRE(rank.news.cause);
  CHECK(rank.news.cause->cause == "there is no OpenSSL");
}

TEST_CASE_METHOD(lone_rank, "dropping a member ends it at once") {
  rank.say(join_group{""});
  rank.say(drop_group{});
  CHECK(rank.news.gone == 1);
  CHECK(rank.wire->stopped);
}
