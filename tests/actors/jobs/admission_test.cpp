#include "actors/jobs/admission.hpp"

#include <catch2/catch_test_macros.hpp>

#include <latch>
#include <thread>

using namespace penstock;
using namespace penstock::jobs;
using namespace std::chrono_literals;

namespace {

steady_time soon() {
  return std::chrono::steady_clock::now() + 10s;
}

}  // namespace

TEST_CASE("jobs enter until the queue is full, and again when some have begun") {
  admission a(2, 100);
  CHECK(a.try_enter(1).value());
  CHECK(a.try_enter(1).value());
  CHECK(!a.try_enter(1).value());
  a.begun(1);
  CHECK(a.try_enter(1).value());
  CHECK(a.now().waiting == 2);
  CHECK(a.now().argument_bytes == 3);
}

TEST_CASE("arguments and kept results share the memory, and a started job counts until it has ended") {
  admission a(100, 100);
  CHECK(a.try_enter(60).value());
  a.begun(1);
  CHECK(!a.try_enter(50).value());
  a.ended(60);
  const auto result = a.kept(1, 70);
  CHECK(!a.try_enter(50).value());
  a.let_go(result);
  CHECK(a.try_enter(50).value());
}

TEST_CASE("a job that can never fit is refused at once, not when the deadline passes") {
  admission a(1, 100);
  const auto refused = a.enter(101, soon());
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::out_of_memory);
}

TEST_CASE("when the deadline passes, the error says what is full") {
  admission a(1, 100);
  REQUIRE(a.try_enter(10).value());
  const auto refused = a.enter(10, std::chrono::steady_clock::now());
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::timed_out);
  CHECK(refused.error().message.find("1 of at most 1 jobs wait") != std::string::npos);
}

TEST_CASE("a thread counts as waiting for itself after 10 s of running time without a change") {
  admission a(100, 100);
  const auto held = a.kept(1, 100);
  held->owner = this_thread();
  a.decided(0, schedule::job_book::memory_lack{2, 1}, a.room_now());
  steady_time now{1h};
  CHECK(!a.waits_for_itself(now));
  now += 1h;  // suspended
  CHECK(!a.waits_for_itself(now));
  for (int looks = 0; looks < 8; ++looks) CHECK(!a.waits_for_itself(now += 1s));
  CHECK(a.waits_for_itself(now += 1s));
  a.let_go(held);
}

TEST_CASE("a waiting caller enters when there is room, and gets the reason when the pool closes") {
  admission a(1, 100);
  REQUIRE(a.try_enter(0).value());
  std::thread waiting([&] { CHECK(a.enter(0, soon())); });
  a.begun(1);
  waiting.join();
  std::thread refused([&] {
    const auto answer = a.enter(0, soon());
    REQUIRE(!answer);
    CHECK(answer.error().message == "over");
  });
  a.close({errc::stopped, "over", 0});
  refused.join();
  CHECK(!a.try_enter(0));
}
