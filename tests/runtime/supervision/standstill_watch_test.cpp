#include "runtime/supervision/standstill_watch.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;
using penstock::nanoseconds;
using penstock::supervision::standstill_watch;

TEST_CASE("a process that did not run between two looks was suspended for the time since the first one") {
  standstill_watch watch(200ms);
  CHECK_FALSE(watch.look(100s, 0s));  // the first look has no predecessor
  CHECK_FALSE(watch.look(100s + 200ms, 0s));
  CHECK(watch.look(112s, 0s) == nanoseconds(11s + 800ms));
  CHECK_FALSE(watch.look(112s + 200ms, 0s));
}

TEST_CASE("a process that was suspended in the middle of long work was suspended") {
  standstill_watch watch(200ms);
  CHECK_FALSE(watch.look(100s, 4s));
  CHECK(watch.look(103s + 200ms, 4s + 500ms) == nanoseconds(3s + 200ms));
}

TEST_CASE("neither long work nor a lack of cores counts as a standstill") {
  standstill_watch watch(200ms);
  CHECK_FALSE(watch.look(100s, 4s));
  CHECK_FALSE(watch.look(105s, 8s));  // in 5 s the process worked and waited for a core for 4 s
  CHECK(watch.look(110s, 9s) == nanoseconds(5s));
}

TEST_CASE("less than a second is not reported") {
  standstill_watch watch(200ms);
  CHECK_FALSE(watch.look(100s, 0s));
  CHECK_FALSE(watch.look(101s + 100ms, 0s));
  CHECK(watch.look(102s + 300ms, 0s).has_value());
}
