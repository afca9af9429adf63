#include "runtime/supervision/standstill_watch.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;
using penstock::nanoseconds;
using penstock::supervision::standstill_watch;

TEST_CASE("a process that did not run between two polls was suspended for the time since the first one") {
  standstill_watch watch(200ms);
  CHECK_FALSE(watch.look(100s, 0s));  // the first look has no predecessor
  watch.rests(100s, 0s);
  CHECK_FALSE(watch.look(100s + 200ms, 0s));
  watch.rests(100s + 200ms, 0s);
  CHECK(watch.look(112s, 0s) == nanoseconds(11s + 800ms));
  watch.rests(112s, 0s);
  CHECK_FALSE(watch.look(112s + 200ms, 0s));
}

TEST_CASE("neither long work nor a lack of cores counts as a standstill") {
  standstill_watch watch(200ms);
  watch.rests(100s, 4s);
  CHECK_FALSE(watch.look(105s, 8s));  // in 5 s it waited 4 s for a core
  CHECK(watch.look(105s, 5s) == nanoseconds(5s));
  watch.rests(120s, 8s);  // the work after the look took 15 s
  CHECK_FALSE(watch.look(120s + 200ms, 8s));
}

TEST_CASE("less than a second is not reported") {
  standstill_watch watch(200ms);
  watch.rests(100s, 0s);
  CHECK_FALSE(watch.look(101s + 100ms, 0s));
  CHECK(watch.look(101s + 200ms, 0s).has_value());
}
