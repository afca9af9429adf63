#include "runtime/device/alarm.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <future>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

steady_time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

TEST_CASE("an alarm rings once, not before its time") {
  device::alarm clock;
  std::promise<steady_time> rung;
  std::atomic<int> times{0};
  clock.on_ring([&] {
    if (++times == 1) rung.set_value(now());
  });
  const steady_time due = now() + 5ms;
  clock.set(due);
  CHECK(rung.get_future().get() >= due);
  // The next ring shows that there was none in between.
  std::promise<void> again;
  clock.on_ring([&] {
    ++times;
    again.set_value();
  });
  clock.set(now());
  again.get_future().wait();
  CHECK(times == 2);
}

TEST_CASE("setting an alarm again replaces what was set") {
  device::alarm clock;
  std::promise<void> rung;
  clock.on_ring([&] { rung.set_value(); });
  clock.set(now() + 1h);
  clock.set(now() - 1h);
  CHECK(rung.get_future().wait_for(10s) == std::future_status::ready);
}

TEST_CASE("an alarm that is postponed repeatedly rings only at the last time") {
  device::alarm clock;
  std::promise<steady_time> rung;
  clock.on_ring([&] { rung.set_value(now()); });
  steady_time due;
  for (int i = 0; i < 1000; ++i) clock.set(due = now() + 20ms);
  CHECK(rung.get_future().get() >= due);
}

TEST_CASE("an alarm that is set is cancelled with its owner") {
  device::alarm clock;
  clock.on_ring([] { FAIL("it rang"); });
  clock.set(now() + 1h);
}
