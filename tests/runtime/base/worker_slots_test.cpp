// How many slots a worker gets.
#include "runtime/base/worker_slots.hpp"

#include <catch2/catch_test_macros.hpp>

#include <limits>

using namespace penstock;

TEST_CASE("without a number in the config, a worker has as many slots as fit in 8 MiB, at least 3 and at most 8") {
  const loader_config usual;
  CHECK(slots_of_a_worker(usual, 0) == 8);
  CHECK(slots_of_a_worker(usual, 4 * KiB) == 8);
  CHECK(slots_of_a_worker(usual, 1 * MiB) == 8);
  CHECK(slots_of_a_worker(usual, 1 * MiB + 1) == 7);
  CHECK(slots_of_a_worker(usual, 2 * MiB) == 4);
  CHECK(slots_of_a_worker(usual, 2 * MiB + 1) == 3);
  CHECK(slots_of_a_worker(usual, 37 * MiB) == 3);
  CHECK(slots_of_a_worker(usual, std::numeric_limits<std::uint64_t>::max()) == 3);
  CHECK(most_slots_of_a_worker(usual) == 8);
  CHECK(slots_of_a_pool_worker(usual) == 3);
}

TEST_CASE("a number of slots in the config applies whatever the size of a slot") {
  loader_config chosen;
  for (const std::uint32_t slots : {1U, 2U, 24U, 1024U}) {
    chosen.slots_per_worker = slots;
    CHECK(slots_of_a_worker(chosen, 1) == slots);
    CHECK(slots_of_a_worker(chosen, 500 * GiB) == slots);
    CHECK(most_slots_of_a_worker(chosen) == slots);
    CHECK(slots_of_a_pool_worker(chosen) == slots);
  }
}

TEST_CASE("hedging adds one slot, which the worker's own batches never use") {
  loader_config hedging;
  hedging.hedge = true;
  CHECK(slots_for_batches(hedging, 1 * MiB) == 8);
  CHECK(slots_of_a_worker(hedging, 1 * MiB) == 9);
  CHECK(slots_of_a_worker(hedging, 1 * GiB) == 4);
  CHECK(most_slots_of_a_worker(hedging) == 9);
  hedging.slots_per_worker = 1024;  // the most that a flight mark can encode
  CHECK(slots_of_a_worker(hedging, 1) == 1024);
}
