#include "simulated_stream.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace penstock::testing;

namespace {

constexpr double photographs = 550;  // samples a second, of one worker

simulated_stream photos(std::uint32_t workers, stream_plan plan = {}, supervision::tuner_limits limits = {1, 64, 16}) {
  if (!plan.loads) plan.loads = [](double n) { return photographs * n; };
  return {std::move(plan), limits, workers, 1};
}

}  // namespace

TEST_CASE("the tuner gets from 1 worker to all cores within 20 s while the consumer waits") {
  auto s = photos(1);
  s.run_for(20s);
  CHECK(s.capacity(s.tuner.workers()) >= 0.95 * s.fastest(16));
  CHECK(s.tuner.workers() <= 16);
  REQUIRE_FALSE(s.steps.empty());
  CHECK(s.steps.front().why == "the consumer waited 100 % of the time, and 14.9 of 16 cores were idle");
}

TEST_CASE("the tuner shrinks to what a consumer of 2000 samples a second needs") {
  auto s = photos(16, {.takes = 2000});
  s.run_for(20s);
  CHECK(s.tuner.workers() >= 4);  // 3.6 are busy
  CHECK(s.tuner.workers() <= 5);
  CHECK(s.steps.size() == 1);
  CHECK(s.steps.front().why.find("the consumer took ") == 0);
  s.run_for(10min);
  CHECK(s.steps.size() == 1);
}

TEST_CASE("the tuner grows again when the consumer becomes faster") {
  auto s = photos(16, {.takes = 2000});
  s.run_for(60s);
  s.plan.takes = 1e9;
  s.run_for(10s);
  CHECK(s.tuner.workers() >= 8);
  s.run_for(140s);
  CHECK(s.capacity(s.tuner.workers()) >= 0.9 * s.fastest(16));
}

TEST_CASE("a consumer that pauses does not shrink the pool") {
  auto s = photos(16, {.takes = 7000});
  s.run_for(30s);
  const auto before = s.tuner.workers();
  s.plan.takes = 0;
  s.run_for(5min);
  CHECK(s.tuner.workers() == before);
}

TEST_CASE("a consumer that pauses after its first batch does not shrink the pool") {
  auto s = photos(16, {.takes = 2000});
  s.look();
  s.plan.takes = 0;
  s.run_for(5min);
  CHECK(s.steps.empty());
}

TEST_CASE("a consumer that takes a batch now and then is measured between its pauses") {
  auto s = photos(16, {.takes = 7000});
  s.run_for(30s);
  for (int i = 0; i < 60; ++i) {
    s.plan.takes = i % 2 == 0 ? 0 : 7000;
    s.run_for(5s);
  }
  CHECK(s.tuner.workers() >= 13);  // 12.7 workers are busy while the consumer takes batches
}

TEST_CASE("the tuner leaves the training program the cores that it uses") {
  auto s = photos(16, {.own_cores = 1.0});
  s.run_for(30s);
  CHECK(s.tuner.workers() == 15);
  auto two = photos(2, {.cores = 2, .own_cores = 1.0}, {1, 64, 2});
  two.run_for(30s);
  CHECK(two.tuner.workers() == 1);
}

TEST_CASE("half a core gets one worker, even if that waits for the quota all the time") {
  auto s = photos(1, {.cores = 0.5, .own_cores = 0.05, .demand = 0.3}, {1, 64, 0.5});
  s.run_for(5min);
  CHECK(s.tuner.workers() == 1);
  CHECK(s.steps.empty());
}

TEST_CASE("there may be more workers than cores if they wait for storage") {
  auto s = photos(4, {.cores = 4, .demand = 0.1}, {1, 64, 4});
  s.run_for(20s);
  CHECK(s.tuner.workers() > 16);
}

TEST_CASE("the tuner keeps few workers where more would load no faster") {
  auto s = photos(16, {.loads = saturates_at(photographs, 5)});
  s.run_for(60s);
  CHECK(s.tuner.workers() >= 5);
  CHECK(s.tuner.workers() <= 8);
}

TEST_CASE("[loader.limits] bounds the tuner") {
  auto s = photos(4, {}, {4, 6, 16});
  s.run_for(60s);
  CHECK(s.tuner.workers() == 6);
  s.plan.takes = 100;
  s.run_for(60s);
  CHECK(s.tuner.workers() == 4);
}

TEST_CASE("a step for which there is no memory is not tried again") {
  auto s = photos(4);
  while (s.steps.empty()) s.look();
  s.tuner.refused(s.steps.front(), "there is not enough memory for 8 workers");
  CHECK(s.tuner.workers() == 4);
  CHECK(s.tuner.sentence() == "there is not enough memory for 8 workers");
  s.run_for(5min);
  CHECK(s.tuner.workers() <= 4);
}

TEST_CASE("the tuner changes nothing while it gets no readings") {
  worker_tuner tuner({1, 64, 16}, 4);
  steady_time now(1000s);
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(tuner.look(now += 200ms, {}));
  CHECK(tuner.searches());
}
