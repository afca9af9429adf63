#include "actors/jobs/device_result.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::jobs;
using namespace std::chrono_literals;

namespace {

/// Checks once a second, as the job scheduler does. Returns whether a stall was reported.
bool looks(lent_buffers& buffers, steady_time& now, int times) {
  bool told = false;
  for (int i = 0; i < times; ++i) told |= buffers.held_too_long(now += 1s).has_value();
  return told;
}

lent_buffers two_buffers() {
  return {std::make_shared<batch_home>("result", "pool"), 2, [] {}};
}

}  // namespace

TEST_CASE(
    "after 10 s of waiting for a device buffer, the error names the functions whose results hold all of them") {
  lent_buffers buffers = two_buffers();
  steady_time now{1h};
  CHECK_FALSE(looks(buffers, now, 20));
  buffers.lend(7, now);
  CHECK_FALSE(looks(buffers, now, 10));
  const auto who = buffers.held_too_long(now += 1s);
  REQUIRE(who);
  CHECK(who->find("of jobs 7") != std::string::npos);
  buffers.came_back(7, now);
  CHECK_FALSE(looks(buffers, now, 20));
}

TEST_CASE("time during which the program was suspended does not count as holding a device buffer") {
  lent_buffers buffers = two_buffers();
  steady_time now{1h};
  buffers.lend(7, now);
  CHECK_FALSE(looks(buffers, now, 3));
  now += 1h;
  CHECK_FALSE(looks(buffers, now, 5));
  CHECK(looks(buffers, now, 2));
}
