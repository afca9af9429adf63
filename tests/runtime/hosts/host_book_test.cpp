#include "runtime/hosts/host_book.hpp"

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

const steady_time begin{1h};

host_card card_of(std::uint64_t process) {
  return {"loader-" + std::to_string(process), "10.0.0.7:4711", 12, process, "1.0", 8, 4, 4};
}

/// The places in which a worker may run, according to the commands so far.
struct working_places {
  std::set<std::uint32_t> places;

  void follow(const std::vector<book_command>& commands) {
    for (const book_command& one : commands) {
      if (const auto* order = std::get_if<occupy_place>(&one)) places.insert(order->place);
      if (const auto* order = std::get_if<rest_place>(&one)) places.erase(order->place);
      if (const auto* order = std::get_if<vacate_place>(&one)) places.erase(order->place);
    }
  }
};
using those = std::set<std::uint32_t>;

template <class Command>
std::vector<Command> all_of(const std::vector<book_command>& commands) {
  std::vector<Command> found;
  for (const book_command& one : commands)
    if (const auto* it = std::get_if<Command>(&one)) found.push_back(*it);
  return found;
}

}  // namespace

TEST_CASE("a host's connections get the lowest free places, and a full session has none left") {
  host_book book({.first_place = 65, .places = 2});
  CHECK(book.joined(1, card_of(7), begin));
  CHECK(book.joined(2, card_of(7), begin));
  CHECK_FALSE(book.joined(3, card_of(8), begin));
  const auto commands = book.advance(begin);
  CHECK(all_of<host_came>(commands).size() == 1);
  CHECK(all_of<occupy_place>(commands).at(1).place == 66);
  CHECK(book.hosts(begin).at(0).places == std::vector<std::uint32_t>{65, 66});
  book.closed(1, "it was closed");
  CHECK(book.joined(4, card_of(8), begin));
  CHECK(book.connection_at(65) == 4);
}

TEST_CASE("a silent host is lost after lost_after") {
  host_book book({.first_place = 65, .places = 4, .lost_after = 5s});
  REQUIRE(book.joined(1, card_of(7), begin));
  static_cast<void>(book.advance(begin));
  for (auto time = begin; time < begin + 4900ms; time += 500ms) CHECK(book.advance(time).empty());
  CHECK(book.next_deadline() == begin + 5s);
  const auto commands = book.advance(begin + 5s);
  REQUIRE(all_of<vacate_place>(commands).size() == 1);
  CHECK(all_of<vacate_place>(commands)[0].lost);
  CHECK(all_of<close_connection>(commands).at(0).why == "it was silent for 5 s");
  CHECK(all_of<host_went>(commands).at(0).why == "it was silent for 5 s");
  CHECK(all_of<host_went>(commands).at(0).lost == loss_cause::silent);
  CHECK(book.hosts(begin).empty());
}

TEST_CASE("time during which the session did not run does not count as silence of its hosts") {
  host_book book({.first_place = 65, .places = 4, .lost_after = 5s});
  REQUIRE(book.joined(1, card_of(7), begin));
  static_cast<void>(book.advance(begin));
  CHECK(book.advance(begin + 60s).empty());
  for (auto time = begin + 60s; time < begin + 64900ms; time += 500ms) CHECK(book.advance(time).empty());
  CHECK(all_of<host_went>(book.advance(begin + 65s)).size() == 1);
}

TEST_CASE("a host that leaves keeps each connection until its worker has ended") {
  host_book book({.first_place = 65, .places = 4});
  REQUIRE(book.joined(1, card_of(7), begin));
  static_cast<void>(book.advance(begin));
  book.leaving(1);
  const auto first = book.advance(begin);
  REQUIRE(all_of<vacate_place>(first).size() == 1);
  CHECK_FALSE(all_of<vacate_place>(first)[0].lost);
  CHECK(book.hosts(begin).at(0).leaving);
  book.emptied(1);
  const auto then = book.advance(begin);
  CHECK(all_of<host_went>(then).at(0).why.empty());
  CHECK_FALSE(all_of<host_went>(then).at(0).lost);
  CHECK(book.hosts(begin).empty());
}

TEST_CASE("three damaged batches in a row disconnect the whole host, but two do not") {
  host_book book({.first_place = 65, .places = 4});
  for (const connection_id id : {1, 2}) REQUIRE(book.joined(id, card_of(7), begin));
  REQUIRE(book.joined(3, card_of(8), begin));
  static_cast<void>(book.advance(begin));
  for (int i = 0; i < 4; ++i) {
    book.spoilt(1, bad_transfer::damaged, "its digest is wrong");
    book.spoilt(2, bad_transfer::damaged, "its digest is wrong");
    book.received(2, 32, 1000, begin);
  }
  CHECK(book.advance(begin).empty());
  for (int i = 0; i < 3; ++i) book.spoilt(1, bad_transfer::damaged, "its digest is wrong");
  const auto commands = book.advance(begin);
  CHECK(all_of<vacate_place>(commands).size() == 2);
  CHECK(all_of<host_went>(commands).at(0).lost == loss_cause::damaged);
  CHECK(all_of<host_went>(commands).at(0).why == "3 batches in a row arrived damaged or in the wrong size; the last one: its digest is wrong");
  CHECK(book.hosts(begin).size() == 1);
}

TEST_CASE("rates cover the last ten seconds") {
  host_book book({.first_place = 65, .places = 4});
  REQUIRE(book.joined(1, card_of(7), begin));
  for (int i = 0; i < 60; ++i) book.received(1, 100, 1000, begin + i * 500ms);
  const host_view view = book.hosts(begin + 30s).at(0);
  CHECK(view.samples_per_second == 200);
  CHECK(view.bytes_per_second == 2000);
}

TEST_CASE(
    "a scaled host runs that many workers, in its lowest places, and all of them again when it is scaled up") {
  host_book book({.first_place = 65, .places = 8});
  for (const connection_id id : {1, 2, 3, 4}) REQUIRE(book.joined(id, card_of(7), begin));
  REQUIRE(book.joined(5, card_of(8), begin));
  working_places seen;
  seen.follow(book.advance(begin));
  CHECK(book.workers_of("loader-7") == 4);
  CHECK_FALSE(book.workers_of("loader-9"));
  book.scale("loader-7", 2);
  seen.follow(book.advance(begin));
  CHECK(seen.places == those{65, 66, 69});
  CHECK(book.hosts(begin).at(0).wanted == 2);
  book.scale("loader-7", 0);
  seen.follow(book.advance(begin));
  CHECK(seen.places == those{69});
  book.scale("loader-7", 4);
  seen.follow(book.advance(begin));
  CHECK(seen.places == those{65, 66, 67, 68, 69});
}

TEST_CASE("scaling a host also fills its places that an operator has drained") {
  host_book book({.first_place = 65, .places = 8});
  for (const connection_id id : {1, 2}) REQUIRE(book.joined(id, card_of(7), begin));
  static_cast<void>(book.advance(begin));
  book.scale("loader-7", 2);
  CHECK(all_of<occupy_place>(book.advance(begin)).size() == 2);
}

TEST_CASE(
    "a scaled host keeps its number when one of its connections is lost, and when the host comes back") {
  host_book book({.first_place = 65, .places = 8});
  for (const connection_id id : {1, 2, 3}) REQUIRE(book.joined(id, card_of(7), begin));
  working_places seen;
  book.scale("loader-7", 1);
  seen.follow(book.advance(begin));
  CHECK(seen.places == those{65});
  book.closed(1, "it was closed");
  seen.follow(book.advance(begin));
  CHECK(seen.places == those{66});
  for (const connection_id id : {2, 3}) book.closed(id, "it was closed");
  seen.follow(book.advance(begin));
  CHECK(seen.places.empty());
  for (const connection_id id : {4, 5}) REQUIRE(book.joined(id, card_of(7), begin));
  const auto commands = book.advance(begin);
  seen.follow(commands);
  CHECK(seen.places == those{65});
  CHECK(all_of<occupy_place>(commands).size() == 2);  // the supervisor learns of the resting place, too
}

TEST_CASE("no resting worker starts in place of one that leaves with its host") {
  host_book book({.first_place = 65, .places = 8});
  for (const connection_id id : {1, 2}) REQUIRE(book.joined(id, card_of(7), begin));
  book.offers(2, 2);
  book.scale("loader-7", 1);
  static_cast<void>(book.advance(begin));
  book.leaving(1);
  book.emptied(1);
  CHECK(all_of<occupy_place>(book.advance(begin)).empty());
  book.leaving(2);
  book.emptied(2);
  CHECK(all_of<host_went>(book.advance(begin)).at(0).why.empty());
}

TEST_CASE("a resting worker starts in place of one that its host hands to another session") {
  host_book book({.first_place = 65, .places = 8});
  for (const connection_id id : {1, 2, 3}) REQUIRE(book.joined(id, card_of(7), begin));
  book.offers(3, 3);
  book.scale("loader-7", 2);
  static_cast<void>(book.advance(begin));
  book.offers(1, 2);
  book.leaving(1);
  const auto woken = all_of<occupy_place>(book.advance(begin));
  REQUIRE(woken.size() == 1);
  CHECK(woken.at(0).place == 67);
}

TEST_CASE("late transfers do not count towards the loss of a host") {
  host_book book({.first_place = 65, .places = 4});
  REQUIRE(book.joined(1, card_of(7), begin));
  static_cast<void>(book.advance(begin));
  for (int i = 0; i < 5; ++i) book.spoilt(1, bad_transfer::late, "");
  book.spoilt(1, bad_transfer::wrong_size, "it has 9 rows");
  book.spoilt(1, bad_transfer::damaged, "its digest is wrong");
  book.received(1, 32, 1000, begin);
  CHECK(book.advance(begin).empty());
}

TEST_CASE("a host may be scaled to all of its workers, even while it offers fewer because others use them") {
  host_book book({.first_place = 65, .places = 8});
  host_card card = card_of(7);
  card.workers = 1;
  REQUIRE(book.joined(1, card, begin));
  card.workers = 3;
  REQUIRE(book.joined(2, card, begin));
  CHECK(book.workers_of("loader-7") == 4);
  book.scale("loader-7", 4);
  const host_view view = book.hosts(begin).at(0);
  CHECK(view.limit == 4);
  CHECK(view.wanted == 3);
}
