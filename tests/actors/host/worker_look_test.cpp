#include "actors/host/worker_look.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::host;

TEST_CASE("a remote worker is not busy during a transfer, although its flight page shows a load") {
  auto flights = arena::flight_recorders::create(3);
  REQUIRE(flights);
  arena::flight_reading flight;
  flight.state = {arena::phase::loading, 0, 0, 0};
  flight.reads_since = std::chrono::steady_clock::now();
  flights->mirror(2, flight);
  session_status status;
  worker_status worker;
  worker.id = 2;
  worker.state = child_state::ready;
  worker.pid = 1;
  status.workers.push_back(worker);
  for (const bool rests : {false, true}) {
    remote_times times;
    times.rests = rests;
    times.receiving = std::chrono::seconds(3);
    const auto seen = look_at_remote_workers(status, *flights, 1, [&](std::uint32_t) { return std::optional(times); });
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].busy != rests);
    CHECK(seen[0].reads != rests);
    CHECK(seen[0].receiving == std::chrono::seconds(3));
  }
}
