#include "runtime/storage/retry.hpp"

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace penstock;
using namespace std::chrono_literals;

TEST_CASE("only an error that may go away by itself is transient") {
  for (const int status : {408, 429, 500, 502, 503, 504}) CHECK(is_transient_status(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 405, 412, 416, 501, 505}) CHECK_FALSE(is_transient_status(status));
}

TEST_CASE("pauses grow up to two seconds, and the number of attempts is limited") {
  nanoseconds longest = 0ns;
  for (unsigned attempt = 2; attempt <= 10; ++attempt) {
    const auto pause = pause_before(attempt, 17);
    REQUIRE(pause);
    CHECK(*pause >= longest / 2);
    longest = std::max(longest, *pause);
  }
  CHECK(*pause_before(2, 17) <= 5ms);
  CHECK(*pause_before(3, 17) <= 10ms);
  CHECK(longest >= 1s);
  CHECK(longest <= 2s);
  CHECK_FALSE(pause_before(11, 17));
}

TEST_CASE("requests that failed together are not retried together") {
  std::set<nanoseconds> pauses;
  for (std::uint64_t key = 0; key < 100; ++key) pauses.insert(*pause_before(5, key));
  CHECK(pauses.size() > 80);
  CHECK(pause_before(5, 1) == pause_before(5, 1));
}

TEST_CASE("a request counts as slow if it takes longer than recent ones") {
  recent_times times;
  CHECK(times.slow() == 500ms);
  for (int i = 0; i < 200; ++i) times.add(50ms);
  CHECK(times.slow() == 60ms);
  // Slow requests do not change the limit if they are fewer than a tenth.
  for (int i = 0; i < 10; ++i) times.add(5s);
  CHECK(times.slow() == 60ms);
  for (int i = 0; i < 200; ++i) times.add(i % 4 != 0 ? 50ms : 90ms);
  CHECK(times.slow() == 135ms);
  for (int i = 0; i < 200; ++i) times.add(1ms);
  CHECK(times.slow() == 20ms);
  for (int i = 0; i < 200; ++i) times.add(1s);
  CHECK(times.slow() == 1010ms);
}

TEST_CASE("the number of parallel requests grows until their answers start late") {
  request_pace pace;
  for (int i = 0; i < 10'000; ++i) pace.answered(50ms, 60ms, 1000);
  CHECK(pace.at_once() == 64);
  // A server on which each request waits for the requests before it.
  for (int i = 0; i < 20'000; ++i) {
    const nanoseconds wait = std::chrono::milliseconds(2) * static_cast<int>(pace.at_once());
    pace.answered(20ms + wait * (i % 64) / 64, 500ms, 1000);
  }
  CHECK(pace.at_once() > 8);
  CHECK(pace.at_once() < 40);
  // Answers that are slow for other reasons than our own load.
  for (int i = 0; i < 50'000; ++i) pace.answered(200ms, 500ms, 1000);
  CHECK(pace.at_once() == 64);
}

TEST_CASE("the number of parallel requests does not grow on a full link, and grows on slow connections") {
  constexpr std::uint64_t bytes = 110'000;
  // 25 MB/s and 50 ms: eleven requests are in flight before the first one's bytes arrive, and the others share the link.
  request_pace shared;
  for (int i = 0; i < 20'000; ++i) {
    const auto sharing = std::max<std::int64_t>(1, static_cast<std::int64_t>(shared.at_once()) - 11);
    shared.answered(50ms, 50ms + std::chrono::microseconds(4400) * sharing, bytes);
  }
  CHECK(shared.at_once() >= 12);
  CHECK(shared.at_once() <= 24);
  request_pace each_slow;
  for (int i = 0; i < 10'000; ++i) each_slow.answered(30ms, 130ms, 8'000'000);
  CHECK(each_slow.at_once() == 64);
  // Other traffic now uses part of the link for good, so the current speed is the new reference.
  for (int i = 0; i < 20'000; ++i) shared.answered(50ms, 500ms, bytes);
  CHECK(shared.at_once() == 64);
}

TEST_CASE("an answer that has not started counts as slow sooner than one in transfer") {
  request_pace pace;
  for (int i = 0; i < 100; ++i) pace.answered(50ms, 1s, 1000);
  CHECK(pace.patience(false) == 60ms);
  CHECK(pace.patience(true) == 1010ms);
}

TEST_CASE("repeated requests are at most a tenth of all, apart from a few at the start") {
  request_pace pace;
  unsigned taken = 0;
  for (int i = 0; i < 1000; ++i) {
    pace.started();
    if (pace.take_second()) ++taken;
  }
  CHECK(taken >= 100);
  CHECK(taken <= 121);
}
