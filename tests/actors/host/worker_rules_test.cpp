// The settings that a session passes to its supervisor.
#include "actors/host/worker_rules.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("workers that may still be starting do not count as too few") {
  config c;
  CHECK(host::supervisor_settings_of(c, 2).rules.pool.min_ready_within == 60s);
  c.loader.hang.start_deadline = 5min;
  CHECK(host::supervisor_settings_of(c, 2).rules.pool.min_ready_within == 5min);
}

TEST_CASE("listed cores limit the number of workers, and what tuning counts as CPU time") {
  config settings;
  const double everything = host::cpu_of(settings);
  settings.loader.affinity.cores = {0};
  CHECK(host::cpu_of(settings) == std::min(1.0, everything));
  CHECK(host::cores_of(settings) == 1);
  CHECK(host::workers_of(settings) == 1);
}

TEST_CASE("a drained worker has ended when its process is gone, and not while it finishes its work") {
  session_status status;
  status.workers.emplace_back().id = 3;
  worker_status& w = status.workers.front();
  w.pid = 4711;
  w.state = child_state::draining;
  CHECK_FALSE(host::has_ended(status, 3));
  w.pid.reset();
  w.state = child_state::stopped;
  CHECK(host::has_ended(status, 3));
  w.state = child_state::starting;
  CHECK_FALSE(host::has_ended(status, 3));
  CHECK_FALSE(host::has_ended(status, 4));
}
