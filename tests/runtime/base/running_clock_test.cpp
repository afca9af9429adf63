#include "runtime/base/running_clock.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time first_look{1h};

}  // namespace

TEST_CASE("a running clock counts all time of a process that reads it often enough") {
  running_clock clock(first_look, 100ms);
  steady_time now = first_look;
  for (int i = 0; i < 100; ++i) clock.look(now += 150ms);
  CHECK(clock.ran() == now);
  CHECK(clock.stood_still() == 0s);
}

TEST_CASE("a running clock counts only two intervals of a suspension of its process") {
  running_clock clock(first_look, 100ms);
  CHECK(clock.look(first_look + 1h) == first_look + 200ms);
  CHECK(clock.stood_still() == 1h - 200ms);
  CHECK(clock.look(first_look + 1h + 50ms) == first_look + 250ms);
}

TEST_CASE("a running clock never goes backwards") {
  running_clock clock(first_look, 100ms);
  clock.look(first_look + 50ms);
  CHECK(clock.look(first_look) == first_look + 50ms);
  CHECK(clock.look(first_look + 60ms) == first_look + 60ms);
}
