// The settings that a session passes to its supervisor.
#include "actors/host/worker_rules.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("workers that may still be starting do not count as too few") {
  config c;
  CHECK(host::supervisor_settings_of(c, 2).rules.pool.min_ready_within == 60s);
  c.loader.hang.start_deadline = 5min;
  CHECK(host::supervisor_settings_of(c, 2).rules.pool.min_ready_within == 5min);
}
