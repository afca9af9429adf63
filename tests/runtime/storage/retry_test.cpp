#include "runtime/storage/retry.hpp"

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("only what may pass by itself is transient") {
  for (const int status : {408, 429, 500, 502, 503, 504}) CHECK(is_transient_status(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 405, 412, 416, 501, 505}) CHECK_FALSE(is_transient_status(status));
}

TEST_CASE("pauses grow up to two seconds, and end") {
  nanoseconds before = 0ns;
  for (unsigned attempt = 2; attempt <= 10; ++attempt) {
    const auto pause = pause_before(attempt, 17);
    REQUIRE(pause);
    const nanoseconds whole = std::min<nanoseconds>(2s, 25ms * (1U << (attempt - 2)));
    CHECK(*pause >= whole / 2);
    CHECK(*pause <= whole);
    CHECK(*pause >= before / 2);
    before = *pause;
  }
  CHECK_FALSE(pause_before(11, 17));
}

TEST_CASE("requests that failed together do not come back together") {
  std::set<nanoseconds> pauses;
  for (std::uint64_t key = 0; key < 100; ++key) pauses.insert(*pause_before(5, key));
  CHECK(pauses.size() > 80);
  CHECK(pause_before(5, 1) == pause_before(5, 1));
}

TEST_CASE("a request counts as slow by what others took lately") {
  recent_times times;
  CHECK(times.slow() == 500ms);
  for (int i = 0; i < 200; ++i) times.add(50ms);
  CHECK(times.slow() == 75ms);
  // Fewer than a tenth that are slow do not change it.
  for (int i = 0; i < 10; ++i) times.add(5s);
  CHECK(times.slow() == 75ms);
  for (int i = 0; i < 200; ++i) times.add(1ms);
  CHECK(times.slow() == 20ms);
  for (int i = 0; i < 200; ++i) times.add(1s);
  CHECK(times.slow() == 1500ms);
}

TEST_CASE("more requests are sent at a time until their answers begin late") {
  request_pace pace;
  for (int i = 0; i < 10'000; ++i) pace.answered(50ms, 60ms);
  CHECK(pace.at_once() == 64);
  // A server on which each request waits for those before it.
  for (int i = 0; i < 20'000; ++i) {
    const nanoseconds wait = std::chrono::milliseconds(2) * static_cast<int>(pace.at_once());
    pace.answered(20ms + wait * (i % 64) / 64, 500ms);
  }
  CHECK(pace.at_once() > 8);
  CHECK(pace.at_once() < 40);
  // One that is slow, but not because of us.
  for (int i = 0; i < 50'000; ++i) pace.answered(200ms, 500ms);
  CHECK(pace.at_once() == 64);
}

TEST_CASE("an answer that has not begun counts as slow sooner than one that is being sent") {
  request_pace pace;
  for (int i = 0; i < 100; ++i) pace.answered(50ms, 1s);
  CHECK(pace.patience(false) == 75ms);
  CHECK(pace.patience(true) == 1500ms);
}

TEST_CASE("second requests are at most a tenth of all, beyond a first few") {
  request_pace pace;
  unsigned taken = 0;
  for (int i = 0; i < 1000; ++i) {
    pace.started();
    if (pace.take_second()) ++taken;
  }
  CHECK(taken >= 100);
  CHECK(taken <= 121);
}
