// How the keeper of the GPU owner's process handles a communicator, event by event.
#include "actors/supervisor/owner_communicator.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::supervisor;
using namespace std::chrono_literals;
using gpu_owner::communicate;
using progress = group::communicator_state::how;
using steps = std::vector<std::uint64_t>;

namespace {

constexpr steady_time begin_of_time{};

protocol::batches_delivered news_with(const std::string& snapshot, std::uint64_t upload = 0) {
  protocol::batches_delivered news;
  news.deliveries.resize(1);
  news.deliveries[0].upload = upload;
  news.snapshots = true;
  news.snapshot = snapshot;
  return news;
}

communicate order(communicate::act what, std::uint64_t number, std::uint64_t agreed = 0) {
  return {what, number, "id", agreed};
}

bool sends(const owner_communicator::orders& all, communicate::act what) {
  for (const auto& one : all.send) {
    if (one.what == static_cast<std::uint32_t>(what)) return true;
  }
  return false;
}

/// A process that has a communicator.
struct in_use {
  in_use() {
    CHECK(one.introduced() == 0);
    static_cast<void>(one.ready());
    CHECK(sends(one.ordered(order(communicate::act::make, 1), begin_of_time), communicate::act::make));
    static_cast<void>(one.told({1, progress::made, {}}));
  }
  /// Checks from `now` to `until` as often as the keeper does.
  bool is_replaced_by(steady_time& now, steady_time until) {
    bool replaced = false;
    for (; now < until; now += owner_communicator::look_every) replaced = one.look(now).replace || replaced;
    return replaced;
  }
  owner_communicator one{10s};
};

}  // namespace

TEST_CASE("a dying process ends the other ranks' communicator, unless its program has finished") {
  in_use dies;
  const auto told = dies.one.ended(false).told;
  REQUIRE(told.size() == 2);
  CHECK(told[0].at == progress::broken);
  CHECK(told[1].at == progress::aborted);
  in_use finishes;
  CHECK(finishes.one.ended(true).told.empty());
  // The process need not wait for an abort if other ranks lose their communicators.
  const auto abort = finishes.one.ordered(order(communicate::act::abort, 1), begin_of_time);
  REQUIRE(abort.told.size() == 1);
  CHECK(abort.told[0].at == progress::aborted);
}

TEST_CASE("a delivery counts once its step is agreed, and its snapshot is then kept") {
  in_use rank;
  const auto first = rank.one.delivered(16, news_with("at 16"));
  CHECK(first.agreed.empty());
  CHECK(first.held == steps{16});
  CHECK(rank.one.delivered(32, news_with("at 32")).held == steps{16, 32});
  const auto agreed = rank.one.ordered(order(communicate::act::agreed, 0, 16), begin_of_time);
  CHECK(agreed.agreed.size() == 1);
  CHECK(agreed.snapshot == "at 16");
  CHECK(agreed.held == steps{32});
}

TEST_CASE("a process's snapshots outlive it, but its deliveries that were not agreed never count") {
  in_use rank;
  static_cast<void>(rank.one.delivered(16, news_with("at 16")));
  const auto lost = rank.one.ended(false);
  REQUIRE(lost.told.size() == 2);
  CHECK(lost.told[0].at == progress::broken);
  CHECK(lost.told[1].at == progress::aborted);
  const auto agreed = rank.one.ordered(order(communicate::act::agreed, 0, 16), begin_of_time);
  CHECK(agreed.agreed.empty());
  CHECK(agreed.snapshot == "at 16");
  CHECK(rank.one.introduced() == 16);
}

TEST_CASE("a process that had a communicator is replaced before the next one is made") {
  in_use rank;
  static_cast<void>(rank.one.delivered(16, news_with("at 16")));
  static_cast<void>(rank.one.delivered(32, news_with("at 32")));
  const auto abort = rank.one.ordered(order(communicate::act::abort, 1), begin_of_time);
  CHECK(sends(abort, communicate::act::abort));
  CHECK(rank.one.told({1, progress::aborted, {}}).told.size() == 1);
  const auto make = rank.one.ordered(order(communicate::act::make, 2, 16), begin_of_time);
  CHECK(make.replace);
  CHECK(make.held == steps{});  // step 32 is taken again
  CHECK(make.snapshot == "at 16");
  CHECK_FALSE(sends(make, communicate::act::make));
  static_cast<void>(rank.one.ended(false));
  CHECK(rank.one.introduced() == 16);
  CHECK(sends(rank.one.ready(), communicate::act::make));
}

TEST_CASE("a process started with a snapshot older than the agreed one is replaced") {
  in_use rank;
  static_cast<void>(rank.one.delivered(16, news_with("at 16")));
  static_cast<void>(rank.one.ended(false));
  CHECK(rank.one.introduced() == 0);
  static_cast<void>(rank.one.ready());
  const auto make = rank.one.ordered(order(communicate::act::make, 2, 16), begin_of_time);
  CHECK(make.replace);
  static_cast<void>(rank.one.ended(false));
  CHECK(rank.one.introduced() == 16);
}

TEST_CASE("a restarted rank's process counts what the group has agreed on, without a snapshot") {
  owner_communicator one(10s);
  static_cast<void>(one.introduced());
  static_cast<void>(one.ready());
  CHECK(sends(one.ordered(order(communicate::act::agreed, 0, 32), begin_of_time), communicate::act::agreed));
  CHECK_FALSE(one.ordered(order(communicate::act::make, 2, 32), begin_of_time).replace);
  protocol::batches_delivered news;
  news.deliveries.resize(1);
  CHECK(one.delivered(20, news).agreed.size() == 1);
  CHECK(one.delivered(33, news_with("at 33")).agreed.empty());
}

TEST_CASE("the process that will use an id draws it") {
  in_use rank;
  static_cast<void>(rank.one.ordered(order(communicate::act::abort, 1), begin_of_time));
  static_cast<void>(rank.one.told({1, progress::aborted, {}}));
  const auto draw = rank.one.ordered(order(communicate::act::draw_id, 2), begin_of_time);
  CHECK(draw.replace);
  CHECK_FALSE(sends(draw, communicate::act::draw_id));
  static_cast<void>(rank.one.ended(false));
  static_cast<void>(rank.one.introduced());
  CHECK(sends(rank.one.ready(), communicate::act::draw_id));
  rank.one.drawn(2);
  const auto make = rank.one.ordered(order(communicate::act::make, 2), begin_of_time);
  CHECK_FALSE(make.replace);
  CHECK(sends(make, communicate::act::make));
}

TEST_CASE("an id whose process has died is reported as broken, and the group draws another") {
  owner_communicator one(10s);
  static_cast<void>(one.introduced());
  static_cast<void>(one.ready());
  CHECK(sends(one.ordered(order(communicate::act::draw_id, 1), begin_of_time), communicate::act::draw_id));
  one.drawn(1);
  static_cast<void>(one.ended(false));
  const auto make = one.ordered(order(communicate::act::make, 1), begin_of_time);
  REQUIRE(make.told.size() == 2);
  CHECK(make.told[0].at == progress::broken);
  CHECK(make.told[1].at == progress::aborted);
  static_cast<void>(one.introduced());
  CHECK_FALSE(sends(one.ready(), communicate::act::make));
  CHECK(sends(one.ordered(order(communicate::act::draw_id, 2), begin_of_time), communicate::act::draw_id));
  one.drawn(2);
  CHECK(sends(one.ordered(order(communicate::act::make, 2), begin_of_time), communicate::act::make));
}

TEST_CASE("an id is reported as broken if its process must be replaced before using it") {
  in_use rank;
  static_cast<void>(rank.one.delivered(16, news_with("at 16")));
  static_cast<void>(rank.one.ended(false));
  CHECK(rank.one.introduced() == 0);
  static_cast<void>(rank.one.ready());
  static_cast<void>(rank.one.ordered(order(communicate::act::draw_id, 2), begin_of_time));
  rank.one.drawn(2);
  const auto make = rank.one.ordered(order(communicate::act::make, 2, 16), begin_of_time);
  CHECK(make.replace);
  CHECK(make.told.size() == 2);
  static_cast<void>(rank.one.ended(false));
  CHECK(rank.one.introduced() == 16);
  CHECK_FALSE(sends(rank.one.ready(), communicate::act::make));
}

TEST_CASE("an abort of a communicator that no process has is answered at once") {
  owner_communicator one(10s);
  const auto answer = one.ordered(order(communicate::act::abort, 7), begin_of_time);
  REQUIRE(answer.told.size() == 1);
  CHECK(answer.told[0] == group::communicator_state{7, progress::aborted, {}});
}

TEST_CASE("a process that does not answer an abort is replaced after three times abort_timeout") {
  in_use rank;
  static_cast<void>(rank.one.ordered(order(communicate::act::abort, 1), begin_of_time));
  steady_time now = begin_of_time;
  CHECK_FALSE(rank.is_replaced_by(now, begin_of_time + 30s));
  CHECK(rank.is_replaced_by(now, begin_of_time + 31s));
  CHECK_FALSE(rank.is_replaced_by(now, begin_of_time + 62s));
}

TEST_CASE("time during which the keeper did not run does not count towards abort_timeout") {
  in_use rank;
  static_cast<void>(rank.one.ordered(order(communicate::act::abort, 1), begin_of_time));
  steady_time now = begin_of_time + 60s;  // keeper and process were frozen until then
  CHECK_FALSE(rank.one.look(now).replace);
  CHECK_FALSE(rank.is_replaced_by(now, begin_of_time + 89s));
  CHECK(rank.is_replaced_by(now, begin_of_time + 91s));
}

TEST_CASE("when the group has ended, every delivery counts") {
  in_use rank;
  static_cast<void>(rank.one.delivered(16, news_with("at 16")));
  const auto free = rank.one.ordered(order(communicate::act::free, 0), begin_of_time);
  CHECK(free.agreed.size() == 1);
  CHECK(rank.one.delivered(20, news_with("at 20")).agreed.size() == 1);
}

TEST_CASE(
    "a rank that is far ahead of the group holds a bounded number of snapshots, and loses no delivery") {
  in_use rank;
  for (std::uint64_t step = 1; step <= 100; ++step)
    static_cast<void>(rank.one.delivered(step, news_with("s", step)));
  const auto agreed = rank.one.ordered(order(communicate::act::agreed, 0, 100), begin_of_time);
  CHECK(agreed.agreed.size() <= group::held_max);
  std::size_t deliveries = 0;
  for (const auto& news : agreed.agreed) deliveries += news.deliveries.size();
  CHECK(deliveries == 100);
}
