// The words of a run's progress.
#include "tools/penstock/run/progress.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock::cli;

TEST_CASE("a rate has its noun in the singular for one a second") {
  CHECK(rate_for_people(1, "sample") == "1 sample/s");
  CHECK(rate_for_people(0.6, "sample") == "1 sample/s");
  CHECK(rate_for_people(0, "sample") == "0 samples/s");
  CHECK(rate_for_people(249.6, "sample") == "250 samples/s");
}

TEST_CASE("the time left is told while there is something left") {
  CHECK(time_left(10, 2) == "  5 s left");
  CHECK(time_left(0.1, 2) == "  1 s left");
  CHECK(time_left(0, 2).empty());
  CHECK(time_left(10, 0).empty());
}
