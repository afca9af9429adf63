#include "runtime/base/patient_wait.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

/// An event that happens after `needs` on a clock that advances only while the process runs.
struct awaited {
  nanoseconds needs{};
  nanoseconds ran{0};
  steady_time now{1h};
  nanoseconds suspended_at = nanoseconds::max();  // suspends the process for an hour, once it has run for this long

  bool comes_within(nanoseconds at_most) {
    return penstock::comes_within(
        at_most,
        [&](nanoseconds turn) {
          now += turn;
          if (ran + turn > suspended_at) {  // the process is suspended at the end of the turn
            ran = suspended_at;
            suspended_at = nanoseconds::max();
            now += 1h;
          } else {
            ran += turn;
          }
          return ran >= needs;
        },
        [&] { return now; });
  }
};

}  // namespace

TEST_CASE("a wait ends when the event happens, and otherwise at its deadline") {
  awaited soon{.needs = 3s};
  CHECK(soon.comes_within(10s));
  CHECK(soon.ran == 3s);
  awaited late{.needs = 11s};
  CHECK_FALSE(late.comes_within(10s));
  CHECK(late.ran == 10s);
}

TEST_CASE("a wait without patience checks once") {
  awaited there{.needs = 0s};
  CHECK(there.comes_within(0s));
  awaited late{.needs = 1s};
  CHECK_FALSE(late.comes_within(0s));
  CHECK(late.ran == 0s);
}

TEST_CASE("a wait during which the process was suspended for an hour continues afterwards") {
  for (const nanoseconds at : {0ms, 1ms, 2900ms}) {
    awaited one{.needs = 3s, .suspended_at = at};
    CHECK(one.comes_within(10s));
    awaited never_comes{.needs = 24h, .suspended_at = at};
    CHECK_FALSE(never_comes.comes_within(10s));
    CHECK(never_comes.ran >= 9s);
  }
}
