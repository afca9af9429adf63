#include "runtime/base/late_polls.hpp"

#include "tests/runtime/schedule/random_scripts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("a deadline is postponed by the whole time between two polls if the second one is late") {
  late_polls polls(1s, steady_time{1h});
  CHECK(polls.missed(steady_time{1h + 1s}) == 0s);
  CHECK(polls.missed(steady_time{2h}) == 1h - 1s);
  CHECK(polls.missed(steady_time{2h}) == 0s);
  CHECK(polls.missed(steady_time{1h}) == 0s);  // a clock that goes back
  CHECK(polls.missed(steady_time{2h + 1s}) == 0s);
}

TEST_CASE("the first poll is late only if the one before it is known") {
  CHECK(late_polls(1s).missed(steady_time{1h}) == 0s);
  CHECK(late_polls(1s, steady_time{}).missed(steady_time{1h}) == 1h);
}

TEST_CASE("a deadline that is not set is not postponed") {
  steady_time due = never;
  postpone(due, 1h);
  CHECK(due == never);
}

TEST_CASE("in a million random polls a deadline passes only after its full time between timely polls") {
  testing::random_choice choose(testing::seed_of_this_run("late polls"));
  constexpr nanoseconds late_after = 1s;
  steady_time now{1h};
  late_polls polls(late_after, now);
  steady_time due = never;
  nanoseconds counted{0};
  nanoseconds allowed{0};
  std::uint64_t passed = 0;
  std::uint64_t late = 0;
  const std::uint64_t steps = testing::steps_of_this_run();
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (due == never) {
      allowed = std::chrono::milliseconds(choose.below(20'000));
      due = now + allowed;
      counted = 0s;
    }
    const bool is_late = choose.below(10) == 0;
    const nanoseconds gap = std::chrono::milliseconds(is_late ? 1001 + choose.below(1'000'000) : choose.below(1001));
    now += gap;
    postpone(due, polls.missed(now));
    late += is_late ? 1 : 0;
    counted += is_late ? 0s : gap;
    if ((due <= now) != (allowed <= counted)) FAIL("step " << step << ": counted " << counted.count() << " of " << allowed.count() << " ns");
    if (due > now) continue;
    due = never;
    ++passed;
  }
  CHECK(testing::is_tried(passed, 10'000));
  CHECK(testing::is_tried(late, 50'000));
}
