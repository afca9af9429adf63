#include "runtime/base/patient_deadline.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time begin{1'000'000s};

/// Checks every second, `times` times, starting at `from`; returns whether it ever expired.
bool look(patient_deadline& watched, steady_time from, int times) {
  bool over = false;
  for (int i = 1; i <= times; ++i) over |= watched.is_over(from + i * 1s);
  return over;
}

}  // namespace

TEST_CASE("a deadline that is polled often enough expires exactly at its time") {
  patient_deadline watched(30s, 1s);
  watched.restart(begin);
  CHECK_FALSE(look(watched, begin, 30));
  CHECK(watched.is_over(begin + 31s));
  CHECK(watched.counted() == 31s);
}

TEST_CASE("a poller that slept for longer than the limit does not count that time") {
  for (const nanoseconds pause : {nanoseconds(33s), nanoseconds(1h), nanoseconds(1000h)}) {
    patient_deadline watched(30s, 1s);
    watched.restart(begin);
    CHECK_FALSE(look(watched, begin, 5));
    CHECK_FALSE(watched.is_over(begin + 5s + pause));
    CHECK(watched.counted() == 7s);
    // After that, the rest of the timeout counts.
    CHECK_FALSE(look(watched, begin + 5s + pause, 23));
    CHECK(watched.is_over(begin + 5s + pause + 24s));
  }
}

TEST_CASE("for a poller that is slightly late each time, all of the time counts") {
  patient_deadline watched(30s, 1s);
  watched.restart(begin);
  int looks = 1;
  while (!watched.is_over(begin + looks * 1900ms)) ++looks;
  CHECK(looks == 16);  // 15 x 1.9 s = 28.5 s
}

TEST_CASE("progress restarts the deadline") {
  patient_deadline watched(30s, 1s);
  watched.restart(begin);
  CHECK_FALSE(look(watched, begin, 30));
  watched.restart(begin + 30s);
  CHECK_FALSE(look(watched, begin + 30s, 30));
  CHECK(watched.is_over(begin + 61s));
}

TEST_CASE("a time that goes backwards counts as zero") {
  patient_deadline watched(30s, 1s);
  watched.restart(begin);
  CHECK_FALSE(watched.is_over(begin - 100s));
  CHECK(watched.counted() == 0s);
}
