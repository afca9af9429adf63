// The coordinator actor with member actors of both ranks; the test carries their messages.
#include "actors/caf/caf.hpp"
#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace penstock;
using namespace penstock::testing;
using namespace std::chrono_literals;

namespace {

/// Rank 0 with its coordinator, and rank 1. Each link has the number of its rank.
class group_stage {
 public:
  explicit group_stage(rank_card second = card(1)) : one(world, std::move(second)) {
    coordinator_deps deps;
    deps.settings.world_size = 2;
    deps.settings.process = card(0).process;
    deps.settings.join_timeout = 30s;
    deps.group = "job/photos";
    deps.listen = [this](const coordinator_actor&, std::shared_ptr<newest_reports> reports) {
      reports_ = std::move(reports);
      return wire;
    };
    deps.listener = &news;
    deps.ends = ends;
    actor = spawn_coordinator(world.system, std::move(deps));
    world.deliver();
  }
  ~group_stage() { say(drop_group{}); }

  template <class Message>
  void say(Message message) {
    actors::tell(actor, std::move(message));
    world.deliver();
  }
  /// Delivers messages until none is in transit.
  void carry() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      for (auto* rank : {&zero, &one}) {
        if (cut.contains(rank)) continue;
        auto& sent = rank->wire->sent;
        for (std::size_t& at = carried_[rank]; at < sent.size(); ++at, quiet = 0) {
          if (reports_->put(rank == &zero ? 0 : 1, sent[at])) say(reports_arrived{});
        }
      }
      for (; orders_carried_ < wire->sent.size(); ++orders_carried_, quiet = 0) {
        const auto [link, order] = wire->sent[orders_carried_];
        rank_stage& to = link == 0 ? zero : one;
        if (!cut.contains(&to)) to.order(order);
      }
    }
  }
  void pass(nanoseconds time) {
    for (nanoseconds passed{0}; passed < time; passed += 100ms) {
      world.pass(100ms);
      carry();
    }
  }
  /// The texts of rank_lost so far.
  [[nodiscard]] std::vector<std::string> losses() const {
    std::vector<std::string> all;
    for (const auto& [what, text] : news.events) {
      if (what == event_kind::rank_lost) all.push_back(text);
    }
    return all;
  }
  void tell_end(told_end end) {
    ends->put(std::move(end));
    say(reports_arrived{});
  }
  void begin() {
    zero.say(join_group{""});
    one.say(join_group{""});
    carry();
    zero.say(stream_described{{"f00d", 0, 0}});
    one.say(stream_described{{"f00d", 0, 0}});
    carry();
  }

  deterministic_system world;
  std::shared_ptr<fake_coordinator_wire> wire = std::make_shared<fake_coordinator_wire>();
  told news;
  std::shared_ptr<told_ends> ends = std::make_shared<told_ends>();
  rank_stage zero{world, card(0)};
  rank_stage one;
  std::set<const rank_stage*> cut;
  coordinator_actor actor;

 private:
  std::shared_ptr<newest_reports> reports_;
  std::map<const rank_stage*, std::size_t> carried_;
  std::size_t orders_carried_ = 0;
};

}  // namespace

TEST_CASE("two ranks meet, agree, deliver and end") {
  group_stage group;
  group.begin();
  CHECK(group.zero.news.joins == 1);
  CHECK(group.one.news.joins == 1);
  CHECK(group.zero.hand_out() == 1);
  CHECK(group.one.hand_out() == 1);
  group.zero.say(stream_delivered{});
  group.zero.say(leave_group{});
  group.say(leave_group{});
  group.pass(2s);
  CHECK(group.news.gone == 0);  // rank 1 still needs the coordinator
  group.one.say(stream_delivered{});
  group.one.say(leave_group{});
  group.pass(6s);
  CHECK(group.news.gone == 1);
  CHECK(group.wire->stopped);
  CHECK(group.zero.news.gone == 1);
  CHECK(group.one.news.gone == 1);
  CHECK(group.one.news.outcome != group_outcome::failed);
}

TEST_CASE("ranks with different settings all fail, and the error names both values") {
  rank_card other = card(1);
  other.settings = {{"sampler.seed", "8"}};
  group_stage group(std::move(other));
  group.zero.say(join_group{""});
  group.one.say(join_group{""});
  group.carry();
  for (rank_stage* rank : {&group.zero, &group.one}) {
    CHECK(rank->news.outcome == group_outcome::failed);
    REQUIRE(rank->news.cause);
    CHECK(rank->news.cause->cause ==
          "sampler.seed is 7 at rank 0 (node7, pid 4000), but 8 at rank 1 (node7, pid 4001)");
    CHECK(rank->news.joins == 0);
  }
}

TEST_CASE("when a process is known to have exited, the other ranks end at once") {
  group_stage group;
  group.begin();
  group.say(member_process_ended{1});
  group.carry();
  CHECK(group.zero.news.outcome == group_outcome::failed);
  REQUIRE(group.zero.news.cause);
  CHECK(group.zero.news.cause->rank == 1);
  CHECK(group.zero.news.cause->pid == 4001);
  CHECK(group.zero.news.cause->cause == "its process has ended");
  bool told = false;
  for (const auto& [what, text] : group.news.events) told = told || what == event_kind::rank_lost;
  CHECK(told);
}

TEST_CASE("the news of a lost process says how it ended, if the launcher tells that before or soon after the loss") {
  group_stage group;
  group.ends->expect();
  group.begin();
  SECTION("before") { group.tell_end({1, 4001, "SIGSEGV"}); }
  group.say(member_process_ended{1});
  group.carry();
  CHECK(group.zero.news.outcome == group_outcome::failed);  // the group fails without waiting for the launcher
  SECTION("after") {
    CHECK(group.losses().empty());
    group.tell_end({1, 4002, "SIGKILL"});  // pid 4002 is not the process that was lost
    CHECK(group.losses().empty());
    group.tell_end({1, 4001, "SIGSEGV"});
  }
  REQUIRE(group.losses().size() == 1);
  CHECK(group.losses()[0].ends_with("pid 4001): its process has ended: SIGSEGV"));
}

TEST_CASE("the news that a lost rank is back comes after the news of its loss, even if the launcher is slow") {
  coordinator_driver driver({.world_size = 2, .process = card(0).process, .waits_for_lost = true}, "photos", steady_time(1h));
  driver.expects_ends();
  std::vector<std::string> texts;
  const auto advance = [&] {
    for (const auto& command : driver.advance(steady_time(1h))) {
      if (const auto* news = std::get_if<coordinator_news>(&command)) texts.push_back(news->text);
    }
  };
  member_report report;
  report.card = card(1);
  driver.reported(1, report, steady_time(1h));
  driver.process_ended(1, steady_time(1h));
  report.card.process += 1;
  report.card.pid += 1;
  report.card.starts = 1;
  driver.reported(2, report, steady_time(1h));
  advance();
  REQUIRE(texts.size() == 1);  // rank 1 has arrived; the news of its loss is still held back
  driver.ended({1, 4001, "SIGSEGV"});
  advance();
  REQUIRE(texts.size() == 3);
  CHECK(texts[1].ends_with("its process has ended: SIGSEGV"));
  CHECK(texts[2].ends_with("takes its place"));
}

TEST_CASE("the news of a lost process waits for a silent launcher only for a moment, and for none not at all") {
  group_stage group;
  const bool expected = GENERATE(false, true);
  if (expected) group.ends->expect();
  group.begin();
  group.say(member_process_ended{1});
  CHECK(group.losses().size() == (expected ? 0 : 1));
  group.pass(coordinator_driver::told_within + 1s);
  REQUIRE(group.losses().size() == 1);
  CHECK(group.losses()[0].ends_with("pid 4001): its process has ended"));
}

TEST_CASE("the final report of a process counts even if it arrives after news of its exit") {
  group_stage group;
  group.begin();
  group.one.say(session_failed{"no sample is left"});
  group.carry();
  group.say(member_process_ended{1});
  group.carry();
  REQUIRE(group.zero.news.cause);
  CHECK(group.zero.news.cause->cause == "no sample is left");
}

TEST_CASE("a silent rank is lost after lost_after") {
  group_stage group;
  group.begin();
  group.cut.insert(&group.one);
  group.pass(9s);
  CHECK(group.zero.news.outcome == group_outcome::none);
  group.pass(2s);
  CHECK(group.zero.news.outcome == group_outcome::failed);
  REQUIRE(group.zero.news.cause);
  CHECK(group.zero.news.cause->rank == 1);
}

TEST_CASE("a rank that does not arrive is named") {
  group_stage group;
  group.zero.say(join_group{""});
  group.pass(2s);
  CHECK(group.zero.news.status.waits_for == "rank 1 to arrive");
  CHECK(group.zero.news.status.missing == std::vector<std::uint32_t>{1});
  group.pass(29s);
  CHECK(group.zero.news.outcome == group_outcome::failed);
  REQUIRE(group.zero.news.cause);
  CHECK(group.zero.news.cause->cause ==
        "rank 1 did not arrive within 30s; arrived: rank 0 (node7, pid 4000)");
}

TEST_CASE("stopping one rank stops both at the same step") {
  group_stage group;
  group.begin();
  REQUIRE(group.zero.hand_out() == 1);
  REQUIRE(group.zero.hand_out() == 2);
  REQUIRE(group.one.hand_out() == 1);
  group.one.say(stop_group{});
  group.carry();
  CHECK_FALSE(group.zero.hand_out());
  CHECK(group.zero.news.outcome == group_outcome::none);
  CHECK(group.one.hand_out() == 2);
  CHECK_FALSE(group.one.hand_out());
  group.pass(2s);
  CHECK(group.zero.news.outcome == group_outcome::stopped);
  CHECK(group.one.news.outcome == group_outcome::stopped);
  CHECK(group.zero.gate->handed_out() == group.one.gate->handed_out());
}

TEST_CASE(
    "a coordinator without reports exits after a while, and at once if another process has its address") {
  group_stage group;
  SECTION("the address is its own") {
    group.say(leave_group{});
    group.pass(3s);
    CHECK(group.news.gone == 0);
    group.pass(2s);
    CHECK(group.news.gone == 1);
  }
  SECTION("the address is taken") {
    group.say(address_refused{"in use"});
    group.say(leave_group{});
    CHECK(group.news.gone == 1);
  }
}

TEST_CASE("all ranks learn why rank 0 failed, even if it failed before the first report") {
  group_stage group;
  group.zero.say(session_failed{"there is no dataset"});
  group.zero.say(leave_group{});
  group.say(leave_group{});  // the session, too, sends this before a link exists
  group.carry();
  CHECK(group.zero.news.outcome == group_outcome::failed);
  group.pass(1s);
  group.one.say(join_group{""});
  group.carry();
  CHECK(group.one.news.outcome == group_outcome::failed);
  REQUIRE(group.one.news.cause);
  CHECK(group.one.news.cause->rank == 0);
  CHECK(group.one.news.cause->cause == "there is no dataset");
  group.pass(5s);
  CHECK(group.news.gone == 1);
}
