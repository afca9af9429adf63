#include "tests/runtime/net/group_over_links.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace penstock;
using namespace penstock::group;
using namespace penstock::testing;
using namespace std::chrono_literals;

TEST_CASE("ranks join over real links within two seconds, and deliver their stream to its end") {
  const std::uint32_t ranks = GENERATE(1U, 4U, 64U);
  const link_kind kind = GENERATE(link_kind::local, link_kind::secret);
  group_over_links all(kind, {.ranks = ranks});
  const own_time clock;
  all.start_all();
  run_until(all.io, [&] { return all.all_may_hand_out(); });
  const auto joining = clock.passed();
  CHECK(joining < 2s);
  fmt::print("{} ranks over {} links joined in {} ms\n", ranks,
             kind == link_kind::local ? "local" : "encrypted", joining.count());
  all.deliver_to(20);
  run_until(all.io, [&] { return all.all_ended(); });
  for (const auto& [number, rank] : all.ranks) CHECK(rank->end->how == group_outcome::finished);
  CHECK(all.coordinator->news.empty());
}

TEST_CASE("a group continues after rank 0's process is replaced, and no other rank starts over") {
  const link_kind kind = GENERATE(link_kind::local, link_kind::secret);
  group_over_links all(kind, {.ranks = 4});
  all.start_all();
  all.deliver_to(10);
  std::map<std::uint32_t, std::uint32_t> incarnations;
  for (const auto& [number, rank] : all.ranks) incarnations[number] = rank->incarnation();
  all.ranks.erase(0);
  all.coordinator.reset();
  // The rank restarts at the last position known to its launcher.
  all.start_coordinator();
  all.start_rank(0, 8);
  all.deliver_to(20);
  run_until(all.io, [&] { return all.all_ended(); });
  for (const auto& [number, rank] : all.ranks) {
    CHECK(rank->end->how == group_outcome::finished);
    CHECK(rank->incarnation() == incarnations[number] + (number == 0 ? 1 : 0));
  }
}

TEST_CASE("a silent rank ends a group that does not wait for it, after lost_after") {
  group_over_links all(link_kind::secret, {.ranks = 4, .waits = false, .lost_after = 3s});
  all.start_all();
  all.deliver_to(5);
  all.ranks.erase(2);  // over TCP, a closed connection proves nothing about the process
  const own_time clock;
  run_until(all.io, [&] { return all.all_ended(); });
  CHECK(clock.passed() < 3s + 5s);
  for (const auto& [number, rank] : all.ranks) {
    REQUIRE(rank->end->cause);
    CHECK(rank->end->cause->rank == 2);
  }
}

TEST_CASE("a replaced rank continues in a group that waits for it") {
  group_over_links all(link_kind::secret, {.ranks = 4});
  all.start_all();
  all.deliver_to(10);
  all.ranks.erase(3);
  all.start_rank(3, 9);
  all.deliver_to(20);
  run_until(all.io, [&] { return all.all_ended(); });
  for (const auto& [number, rank] : all.ranks) CHECK(rank->end->how == group_outcome::finished);
  CHECK(all.ranks[3]->incarnation() == 2);
}
