#include "runtime/hosts/join_attempts.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::hosts;
using namespace std::chrono_literals;

namespace {

const steady_time first_try{1h};
constexpr connections_now nothing_yet{};

/// A host that runs for `time` with an attempt in progress. Returns the time after it.
steady_time run(join_attempts& attempts, steady_time now, nanoseconds time) {
  for (const steady_time end = now + time; now < end;) static_cast<void>(attempts.wanted({.all = 1, .connecting = 1}, now += 500ms));
  return now;
}

}  // namespace

TEST_CASE(
    "one connection checks whether a session answers, and when it has a place, the others follow at once") {
  join_attempts attempts;
  CHECK(attempts.wanted(nothing_yet, first_try) == 1);
  CHECK(attempts.wanted({.all = 1, .connecting = 1}, first_try) == 0);
  CHECK(attempts.wanted({.all = 1, .held = 1, .offer = 4}, first_try) == 0);  // the host is listing the dataset
  attempts.joined(60s);
  CHECK(attempts.wanted({.all = 1, .held = 1, .offer = 4}, first_try) == 3);
  CHECK(attempts.wanted({.all = 4, .connecting = 2, .held = 2, .offer = 4}, first_try) == 0);
}

TEST_CASE("an address that does not answer is tried at longer and longer intervals, without end") {
  join_attempts attempts({.pause = 300ms, .pause_max = 2s});
  steady_time now = first_try;
  for (const auto pause : {300ms, 600ms, 1200ms, 2000ms, 2000ms}) {
    CHECK(attempts.wanted(nothing_yet, now) == 1);
    CHECK(attempts.failed(now));
    CHECK(attempts.wanted(nothing_yet, now + pause - 1ms) == 0);
    now += pause;
  }
  CHECK(attempts.failed(now + 24h));
  attempts.joined(60s);
  attempts.lost(now);
  CHECK(attempts.wanted(nothing_yet, now + 300ms) == 1);  // the intervals start again at the shortest
}

TEST_CASE("a lost session is given up when it has not returned within the time that it announced") {
  join_attempts attempts;
  for (int i = 0; i < 2; ++i) attempts.joined(60s);
  attempts.lost(first_try);
  CHECK(attempts.failed(run(attempts, first_try, 2min)));  // the other connection is still open
  attempts.lost(first_try + 3min);
  CHECK(attempts.failed(run(attempts, first_try + 3min, 59s)));
  attempts.joined(60s);
  attempts.lost(first_try + 5min);
  CHECK(attempts.failed(run(attempts, first_try + 5min, 60s)));
  CHECK_FALSE(attempts.failed(first_try + 5min + 61s));
  CHECK(attempts.over());
  CHECK(attempts.wanted(nothing_yet, first_try + 1h) == 0);
}

TEST_CASE("time during which a host is suspended does not count towards giving up a session") {
  join_attempts attempts({.look_every = 500ms});
  attempts.joined(60s);
  attempts.lost(first_try);
  steady_time now = run(attempts, first_try, 30s) + 1h;
  CHECK(attempts.failed(now));  // 31 s count: 30 s, and 1 s of the suspended hour
  now = run(attempts, now, 29s);
  CHECK(attempts.failed(now));
  CHECK_FALSE(attempts.failed(run(attempts, now, 500ms)));
}

TEST_CASE(
    "a host retries a session for which it has no worker every second, and at once when one is free") {
  join_attempts attempts;
  attempts.busy(first_try);
  CHECK(attempts.wanted(nothing_yet, first_try + 999ms) == 0);
  CHECK(attempts.wanted({.offer = 1}, first_try + 500ms) == 1);
  CHECK(attempts.wanted(nothing_yet, first_try + 1s) == 1);
}

TEST_CASE(
    "a worker that is handed to another session is not called back, and comes back when the offer rises") {
  join_attempts attempts;
  for (int i = 0; i < 4; ++i) attempts.joined(60s);
  attempts.left();
  CHECK(attempts.wanted({.all = 3, .held = 3, .offer = 3}, first_try) == 0);
  CHECK(attempts.wanted({.all = 3, .held = 3, .offer = 4}, first_try) == 1);
}

TEST_CASE("after the end of the session there are no more attempts") {
  join_attempts attempts;
  attempts.joined(60s);
  attempts.finish();
  attempts.left();
  CHECK(attempts.wanted({.offer = 4}, first_try + 1h) == 0);
}
