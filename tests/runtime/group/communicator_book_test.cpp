// One rank's communicator, event by event; and ranks in a simulated world in which libraries fail, hang and answer late, programs keep
// scopes open, and orders overtake each other. A failing script is named by its seed.
#include "runtime/group/communicator_book.hpp"

#include "tests/runtime/group/communicator_world.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdio>

using namespace penstock;
using namespace penstock::group;
using namespace std::chrono_literals;
using progress = communicator_state::how;

namespace {

constexpr steady_time begin_of_time{};
constexpr communicator_limits limits{2min, 10s};

template <class Command>
std::vector<Command> only(const std::vector<communicator_command>& all) {
  std::vector<Command> found;
  for (const auto& one : all) {
    if (const auto* it = std::get_if<Command>(&one)) found.push_back(*it);
  }
  return found;
}

progress last_told(const std::vector<communicator_command>& all) {
  const auto told = only<tell_communicator>(all);
  REQUIRE_FALSE(told.empty());
  return told.back().state.at;
}

communicator_book made_one(std::uint64_t number = 1) {
  communicator_book book(limits);
  book.make(number, "id", begin_of_time);
  REQUIRE(only<begin_making>(book.advance(begin_of_time)).size() == 1);
  book.made(number);
  REQUIRE(last_told(book.advance(begin_of_time)) == progress::made);
  return book;
}

}  // namespace

TEST_CASE("a communicator is usable only once it is made") {
  communicator_book book(limits);
  CHECK_FALSE(book.open_scope());
  book.make(1, "id", begin_of_time);
  const auto orders = book.advance(begin_of_time);
  CHECK(only<begin_making>(orders).at(0).id == "id");
  CHECK(last_told(orders) == progress::making);
  CHECK_FALSE(book.open_scope());
  book.made(1);
  CHECK(last_told(book.advance(begin_of_time)) == progress::made);
  CHECK(book.open_scope());
  CHECK(book.was_used());
}

TEST_CASE("an abort waits for open scopes, and no new scope can open") {
  communicator_book book = made_one();
  REQUIRE(book.open_scope());
  book.abort(1, begin_of_time);
  CHECK(only<begin_abort>(book.advance(begin_of_time)).empty());
  CHECK_FALSE(book.open_scope());
  book.close_scope();
  CHECK(only<begin_abort>(book.advance(begin_of_time + 1s)).size() == 1);
  book.aborted(1);
  CHECK(last_told(book.advance(begin_of_time + 1s)) == progress::aborted);
}

TEST_CASE("the owner is replaced if a scope stays open longer than abort_timeout") {
  communicator_book book = made_one();
  REQUIRE(book.open_scope());
  book.abort(1, begin_of_time);
  CHECK(only<replace_owner>(book.advance(begin_of_time + 9s)).empty());
  CHECK(book.next_deadline() == begin_of_time + 10s);
  CHECK(only<replace_owner>(book.advance(begin_of_time + 10s)).size() == 1);
  book.make(2, "next", begin_of_time + 11s);
  CHECK(book.advance(begin_of_time + 11s).empty());
}

TEST_CASE("the owner is replaced if an abort does not return") {
  communicator_book book = made_one();
  book.abort(1, begin_of_time);
  REQUIRE(only<begin_abort>(book.advance(begin_of_time)).size() == 1);
  CHECK(only<replace_owner>(book.advance(begin_of_time + 9s)).empty());
  CHECK(only<replace_owner>(book.advance(begin_of_time + 10s)).size() == 1);
}

TEST_CASE("a communicator that is not made in time is broken and can be aborted") {
  communicator_book book(limits);
  book.make(1, "id", begin_of_time);
  static_cast<void>(book.advance(begin_of_time));
  const auto late = book.advance(begin_of_time + 2min);
  CHECK(last_told(late) == progress::broken);
  CHECK(only<tell_communicator>(late).back().state.cause == "it was not made within 2m");
  book.abort(1, begin_of_time + 2min);
  CHECK(only<begin_abort>(book.advance(begin_of_time + 2min)).size() == 1);
}

TEST_CASE("an order to make another one aborts the current one first") {
  communicator_book book = made_one();
  book.make(2, "second", begin_of_time);
  const auto first = book.advance(begin_of_time);
  CHECK(only<begin_abort>(first).at(0).number == 1);
  CHECK(only<begin_making>(first).empty());
  book.aborted(1);
  CHECK(only<begin_making>(book.advance(begin_of_time)).at(0).number == 2);
}

TEST_CASE("messages about an earlier communicator are dropped") {
  communicator_book book = made_one(5);
  book.make(4, "late", begin_of_time);
  book.abort(4, begin_of_time);
  book.failed(4, "late");
  book.aborted(4);
  CHECK(book.advance(begin_of_time).empty());
  CHECK(book.usable());
}

TEST_CASE("an order to abort an unknown communicator is answered, and the late order to make it is dropped") {
  communicator_book book(limits);
  book.abort(3, begin_of_time);
  const auto told = only<tell_communicator>(book.advance(begin_of_time));
  REQUIRE(told.size() == 1);
  CHECK(told[0].state == communicator_state{3, progress::aborted, {}});
  book.make(3, "late", begin_of_time);
  CHECK(book.advance(begin_of_time).empty());
  book.make(4, "next", begin_of_time);
  CHECK(only<begin_making>(book.advance(begin_of_time)).size() == 1);
}

TEST_CASE("despite faults no rank uses a communicator during its abort, and every order is answered") {
  // PENSTOCK_TEST_STEPS makes the test longer.
  const std::uint64_t wanted = communicator_world::steps_wanted(1'000'000);
  communicator_world::totals all;
  std::uint64_t seed = communicator_world::first_seed();
  for (; all.steps < wanted; ++seed) {
    INFO("seed " << seed);
    CHECK_NOTHROW(all += communicator_world(seed).run());
  }
  std::printf("communicator_world: seeds up to %llu, %s\n", static_cast<unsigned long long>(seed),
              all.text().c_str());
  // What never happens in the world is not tested.
  CHECK(all.everything_happened());
}
