#include "runtime/telemetry/rate_meter.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;
using telemetry::rate_meter;

namespace {

const steady_time start{std::chrono::hours(1)};

}  // namespace

TEST_CASE("a rate is known from the first reading") {
  rate_meter meter(start);
  CHECK_FALSE(meter.per_second());
  meter.add(start, 0);
  CHECK_FALSE(meter.per_second());
  meter.add(start + 1s, 50);
  CHECK(meter.per_second() == 50.0);
}

TEST_CASE("a burst before the first reading counts until it is ten seconds old") {
  rate_meter meter(start);
  for (int second = 1; second <= 10; ++second) meter.add(start + second * 1s, 400);
  CHECK(meter.per_second() == 40.0);
  meter.add(start + 11s, 400);
  CHECK(meter.per_second() == 0.0);
}

TEST_CASE("the rate is that of the last ten seconds") {
  rate_meter meter(start);
  std::uint64_t total = 0;
  for (int second = 0; second <= 60; ++second)
    meter.add(start + second * 1s, total += second < 40 ? 1000 : 10);
  CHECK(meter.per_second() == 10.0);
  for (int second = 61; second <= 70; ++second) meter.add(start + second * 1s, total);
  CHECK(meter.per_second() == 0.0);
}

TEST_CASE("time that is left out changes no rate, even if something arrived during it") {
  rate_meter meter(start);
  for (int second = 1; second <= 5; ++second) meter.add(start + second * 1s, second * 10U);
  meter.skip(start + 65s, 54);
  CHECK(meter.per_second() == 10.0);
  meter.add(start + 66s, 64);
  CHECK(meter.per_second() == 10.0);
  rate_meter unread(start);
  unread.skip(start + 9s, 3);
  CHECK_FALSE(unread.per_second());
}
