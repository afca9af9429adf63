// Shutdown of a session: a wait for one part lasts at most its share of the time.
#include "actors/host/ending.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

using namespace penstock::host;
using namespace std::chrono_literals;

TEST_CASE("a session starts once, and not after it was stopped") {
  ending e(25s);
  CHECK(e.begin());
  CHECK_FALSE(e.begin());
  ending stopped(25s);
  stopped.stop(std::nullopt);
  CHECK_FALSE(stopped.begin());
  CHECK(stopped.stopped());
}

TEST_CASE("a stop with less time shortens the shutdown, and one with more time does not lengthen it") {
  ending e(25s);
  CHECK(e.shares().items == 10s);
  e.stop(5s);
  CHECK(e.shares().items == 2s);
  e.stop(10s);
  CHECK(e.shares().items == 2s);
  e.stop(std::nullopt);
  CHECK(e.shares().items == 2s);
}

TEST_CASE("a stop knows how long it has lasted, and when it kills the workers and, without them, the owner's process") {
  ending e(25s);
  const auto now = std::chrono::steady_clock::now();
  CHECK_FALSE(e.stopping_for(now));
  e.owner_told(true, now);  // the stream is complete, so this is not a stop
  CHECK_FALSE(e.killed_in(true, now));
  CHECK_FALSE(e.killed_in(false, now));
  ending stopped(25s);
  stopped.stop(std::nullopt);
  const auto at = std::chrono::steady_clock::now() + 2s;
  CHECK(*stopped.stopping_for(at) >= 2s);
  CHECK(*stopped.killed_in(true, at) <= 8s);
  CHECK_FALSE(stopped.killed_in(false, at));
  stopped.owner_told(false, at);
  stopped.owner_told(false, at + 5s);  // a second request gives it no more time
  CHECK(*stopped.killed_in(false, at + 5s) == 7s);
  CHECK(*stopped.killed_in(false, at + 20s) == 0s);
  stopped.stop(0ms);
  CHECK(*stopped.killed_in(false, at + 5s) == 0s);
}

TEST_CASE("waits for the pool and the owner end when these have ended") {
  ending e(1h);
  std::jthread pool([&] { e.wait_for_pool(); });
  bool owner_is_gone = false;
  std::jthread owner([&] { owner_is_gone = e.wait_for_owner(); });
  e.pool_gone();
  e.owner_gone();
  pool.join();
  owner.join();
  e.wait_for_pool();  // returns at once
  CHECK(owner_is_gone);
}

TEST_CASE("a stop shortens waits in progress, and a wait for an owner that is still there says so") {
  ending e(1h);
  const auto begin = std::chrono::steady_clock::now();
  std::jthread pool([&] { e.wait_for_pool(); });
  bool owner_is_gone = true;
  std::jthread owner([&] { owner_is_gone = e.wait_for_owner(); });
  e.stop(0ms);
  pool.join();
  owner.join();
  CHECK_FALSE(owner_is_gone);
  // The waits end long before the hour: 1 s remains for the kernel.
  CHECK(std::chrono::steady_clock::now() - begin < 30s);
}
