// A host that lies about the size of a batch: what it announces is compared with the lease and with the slot.
#include "actors/remote/landing_slots.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <limits>

using namespace penstock;
using namespace penstock::hosts;

namespace {

constexpr std::uint32_t batch_size = 4;
constexpr std::uint32_t row_bytes = 300;
constexpr std::array<std::uint32_t, 2> slots{0, 1};
constexpr std::uint32_t leased_generation = 7;

/// Two slots of 4 rows; the first is leased for 3 samples.
struct leased_slots {
  arena::arena memory;
  landing_slots landing;
  std::uint64_t slot_bytes = 0;

  leased_slots() : memory(*arena::arena::create()) {
    const std::vector<tensor_spec> tensors{{.name = "data", .type = dtype::uint8, .shape = {row_bytes}}};
    const auto layout = lay_out(tensors, batch_size);
    REQUIRE(layout);
    slot_bytes = layout->bytes;
    const arena::geometry shape{slot_bytes, slots.size(), 1};
    REQUIRE(memory.size_and_seal(shape));
    REQUIRE(landing.assign({slot_bytes, shape.slots, shape.partitions, 0, batch_size}, tensors, memory.fd()));
    landing.leased({.slot = slots[0], .generation = leased_generation, .samples = {{}, {}, {}}});
  }
  [[nodiscard]] static batch_follows announced(std::uint32_t rows, std::uint64_t bytes) {
    return {.slot = slots[0], .generation = leased_generation, .rows = rows, .bytes = bytes, .report = {}};
  }
  [[nodiscard]] std::string misfit(const batch_follows& batch) const {
    bool late = true;
    std::string why = landing.misfit(batch, late);
    CHECK_FALSE(late);
    return why;
  }
};

}  // namespace

TEST_CASE("a batch that fits its lease may be received into its slot and nowhere else") {
  const leased_slots held;
  for (const std::uint32_t rows : {0U, 1U, 3U}) {
    const batch_follows batch = leased_slots::announced(rows, std::uint64_t{rows} * row_bytes);
    CHECK(held.landing.holds(batch.bytes));
    CHECK(held.misfit(batch).empty());
    CHECK(held.landing.room(batch).size() == batch.bytes);
  }
}

TEST_CASE("no announcement larger than a slot is held") {
  leased_slots held;
  CHECK(held.landing.holds(held.slot_bytes));
  CHECK_FALSE(held.landing.holds(held.slot_bytes + 1));
  CHECK_FALSE(held.landing.holds(std::numeric_limits<std::uint64_t>::max()));
  held.landing.unmap();
  CHECK_FALSE(held.landing.holds(0));
}

TEST_CASE("bytes that differ from those of the announced rows are named with both values") {
  const leased_slots held;
  CHECK(held.misfit(leased_slots::announced(3, 901)) == "3 rows have 900 bytes, but 901 were announced");
  CHECK(held.misfit(leased_slots::announced(3, 0)) == "3 rows have 900 bytes, but 0 were announced");
  CHECK(held.misfit(leased_slots::announced(2, 900)) == "2 rows have 600 bytes, but 900 were announced");
}

TEST_CASE("more rows than were leased are named with both values") {
  const leased_slots held;
  CHECK(held.misfit(leased_slots::announced(4, 1200)) == "it has 4 rows, but 3 samples were leased");
  constexpr auto all = std::numeric_limits<std::uint32_t>::max();
  CHECK(held.misfit(leased_slots::announced(all, 900)) == "it has 4294967295 rows, but 3 samples were leased");
}

TEST_CASE("a slot that is not leased, does not exist, or has another generation is late") {
  leased_slots held;
  const auto is_late = [&](std::uint32_t slot, std::uint32_t generation) {
    batch_follows batch = leased_slots::announced(3, 900);
    batch.slot = slot;
    batch.generation = generation;
    bool late = false;
    return !held.landing.misfit(batch, late).empty() && late;
  };
  CHECK(is_late(slots[1], leased_generation));
  CHECK(is_late(1000, leased_generation));
  CHECK(is_late(slots[0], leased_generation - 1));
  CHECK_FALSE(is_late(slots[0], leased_generation));
  held.landing.landed(slots[0]);
  CHECK(is_late(slots[0], leased_generation));  // the same batch twice
}
