#include "runtime/telemetry/rate_meter.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using telemetry::rate_meter;

namespace {

const steady_time start{std::chrono::hours(1)};

}  // namespace

TEST_CASE("a rate needs two readings") {
  rate_meter meter;
  CHECK_FALSE(meter.per_second());
  meter.add(start, 100);
  CHECK_FALSE(meter.per_second());
  meter.add(start + 1s, 150);
  CHECK(meter.per_second() == 50.0);
}

TEST_CASE("the rate is that of the last ten seconds") {
  rate_meter meter;
  std::uint64_t total = 0;
  for (int second = 0; second <= 60; ++second)
    meter.add(start + second * 1s, total += second < 40 ? 1000 : 10);
  CHECK(meter.per_second() == 10.0);
  for (int second = 61; second <= 70; ++second) meter.add(start + second * 1s, total);
  CHECK(meter.per_second() == 0.0);
}

TEST_CASE("a falling total restarts the rate") {
  rate_meter meter;
  meter.add(start, 1000);
  meter.add(start + 1s, 1100);
  meter.add(start + 2s, 5);
  CHECK_FALSE(meter.per_second());
  meter.add(start + 3s, 25);
  CHECK(meter.per_second() == 20.0);
}
