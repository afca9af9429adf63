// The order in which slots get their memory.
#include "runtime/arena/reservation.hpp"

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace penstock;
using namespace penstock::arena;

namespace {

constexpr std::uint64_t big_slot = 20 * MiB;  // larger than one part of the reservation

std::vector<slot_range> rest_of(reservation& order) {
  std::vector<slot_range> all;
  while (const auto part = order.next()) all.push_back(*part);
  return all;
}

}  // namespace

TEST_CASE("a partition of few slots, or of small ones, gets all its memory at once") {
  for (const geometry shape : {geometry{big_slot, 3, 2}, geometry{big_slot, 1, 2}, geometry{64 * KiB, 64, 2}}) {
    reservation order(shape);
    const slot_range all = order.begin(1);
    CHECK(all == slot_range{1, 0, shape.slots});
    CHECK(order.is_last(all));
    CHECK_FALSE(order.next());
  }
}

TEST_CASE("the first slots of every partition get their memory before the other slots of any") {
  reservation order({big_slot, 5, 3});
  CHECK(order.begin(2) == slot_range{2, 0, 3});
  CHECK(order.begin(0) == slot_range{0, 0, 3});
  CHECK(rest_of(order) == std::vector<slot_range>{{2, 3, 4}, {2, 4, 5}, {0, 3, 4}, {0, 4, 5}});
}

TEST_CASE("a partition that begins later waits for the others only with its other slots") {
  reservation order({big_slot, 5, 3});
  static_cast<void>(order.begin(0));
  CHECK(order.next() == slot_range{0, 3, 4});
  CHECK(order.begin(1) == slot_range{1, 0, 3});
  CHECK(rest_of(order) == std::vector<slot_range>{{0, 4, 5}, {1, 3, 4}, {1, 4, 5}});
}

TEST_CASE("parts adjoin, contain each slot once and stay below the size of a part, and only the last one is the last") {
  for (const std::uint64_t slot_bytes : {1 * MiB, 5 * MiB, 9 * MiB}) {
    const geometry shape{slot_bytes, 64, 1};
    reservation order(shape);
    std::uint32_t end = 0;
    for (std::optional<slot_range> part = order.begin(0); part; part = order.next()) {
      CHECK(part->first == end);
      CHECK(part->end > part->first);
      if (part->first > 0) CHECK((part->end - part->first) * shape.slot_stride() <= reservation::part_bytes);
      end = part->end;
      CHECK(order.is_last(*part) == (end == shape.slots));
    }
    CHECK(end == shape.slots);
  }
}
