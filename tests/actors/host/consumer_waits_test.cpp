#include "actors/host/consumer_waits.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using host::consumer_waits;

namespace {

constexpr steady_time noon = steady_time{} + 12h;

}  // namespace

TEST_CASE("a pause does not count as a wait, whenever it begins and ends") {
  consumer_waits waits;
  SECTION("within a wait") {
    waits.begin(noon);
    waits.pause(true, noon + 2s);
    CHECK(waits.until(noon + 50s) == 2s);
    waits.pause(false, noon + 60s);
    CHECK(waits.until(noon + 60s) == 2s);
    waits.end(noon + 61s);
    CHECK(waits.until(noon + 70s) == 3s);
  }
  SECTION("around a wait") {
    waits.pause(true, noon);
    waits.begin(noon + 1s);
    waits.end(noon + 9s);
    waits.pause(false, noon + 10s);
    CHECK(waits.until(noon + 10s) == 0s);
  }
  SECTION("while a consumer in another process waits") {
    waits.told(3s, noon);
    waits.pause(true, noon + 1s);
    waits.told(33s, noon + 30s);
    waits.pause(false, noon + 31s);
    CHECK(waits.until(noon + 31s) == 4s);
    waits.told(35s, std::nullopt);
    CHECK(waits.until(noon + 40s) == 5s);
  }
}

TEST_CASE("a suspension does not count as a wait, even before it is noticed") {
  consumer_waits waits;
  waits.begin(noon);
  waits.look(noon + 1s, 0s);
  CHECK(waits.until(noon + 61s) == 3s);  // the process was suspended, and has just continued
  waits.look(noon + 61s, 60s);
  CHECK(waits.until(noon + 61s) == 3s);
  waits.end(noon + 64s);
  CHECK(waits.until(noon + 64s) == 4s);
}

TEST_CASE("a suspension within a pause is left out once, and one without a wait leaves out nothing") {
  consumer_waits waits;
  waits.begin(noon);
  waits.look(noon + 1s, 0s);
  waits.pause(true, noon + 1s);
  waits.look(noon + 31s, 30s);
  waits.pause(false, noon + 31s);
  waits.look(noon + 31s, 0s);
  waits.end(noon + 32s);
  waits.look(noon + 32s, 0s);
  waits.look(noon + 92s, 60s);
  CHECK(waits.until(noon + 92s) == 2s);
}

TEST_CASE("a look that is late because the process had no core takes nothing from a wait") {
  consumer_waits waits;
  waits.begin(noon);
  waits.look(noon, 0s);
  waits.look(noon + 20s, 0s);
  CHECK(waits.until(noon + 20s) == 20s);
}
