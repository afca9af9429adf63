#include "runtime/base/slow_samples.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using namespace std::chrono_literals;

namespace {

constexpr steady_time start = steady_time{} + 1h;

}  // namespace

TEST_CASE("a worker reports the slowest samples of a batch, and how much longer than usual its slow ones took") {
  sample_times times;
  for (std::uint64_t i = 0; i < 64; ++i) times.note(i, "s", i == 9 || i == 40 ? nanoseconds(2s) : nanoseconds(500us));
  times.note(64, "a bit slower", 2ms);
  const sample_times::of_batch first = times.take();
  CHECK(first.slow == 2 * (2s - 500us));
  REQUIRE(first.slowest.size() == 3);
  CHECK(first.slowest[0].took == 2s);
  CHECK(first.slowest[2].name == "a bit slower");
  const sample_times::of_batch nothing = times.take();
  CHECK(nothing.slow == 0s);
  CHECK(nothing.slowest.empty());
}

TEST_CASE("samples of a batch that all take long are not slow, and fast ones are never named") {
  sample_times times;
  for (std::uint64_t i = 0; i < 4; ++i) times.note(i, "s", 3s);
  CHECK(times.take().slow == 0s);
  for (std::uint64_t i = 0; i < 64; ++i) times.note(i, "s", i == 7 ? nanoseconds(900us) : nanoseconds(10us));
  const sample_times::of_batch batch = times.take();
  CHECK(batch.slow == 0s);
  CHECK(batch.slowest.empty());
}

TEST_CASE("the usual time of a small batch is that of earlier batches") {
  sample_times times;
  for (std::uint64_t i = 0; i < 32; ++i) times.note(i, "s", 1ms);
  static_cast<void>(times.take());
  times.note(99, "tom.jpg", 1s);
  CHECK(times.take().slow == 999ms);
}

TEST_CASE("two samples without a number are told apart by their names") {
  slowest_samples kept;
  for (const char* const name : {"sample 4 of shard 0", "sample 4 of shard 1"}) kept.note({~std::uint64_t{0}, name, 1s}, 0, start);
  CHECK(kept.at(start).size() == 2);
}

TEST_CASE("the slowest samples are kept for minutes, at most 8 of them, each once") {
  slowest_samples kept;
  CHECK(kept.at(start).empty());
  for (std::uint64_t i = 0; i < 20; ++i) kept.note({i, "s", 10ms * static_cast<int>(i)}, 0, start + i * 1s);
  const auto slowest = kept.at(start + 20s);
  REQUIRE(slowest.size() == slowest_samples::kept);
  CHECK(slowest.front().sample.index == 19);
  CHECK(slowest.back().sample.index == 12);
  kept.note({15, "s", 165ms}, 3, start + 30s);
  kept.note({15, "s", 2ms}, 4, start + 31s);  // sample 15 is not always slow
  const auto again = kept.at(start + 32s);
  REQUIRE(again.size() == slowest_samples::kept);
  CHECK(again[3].sample.took == 165ms);
  CHECK((again[3].worker == 3 && again[3].times == 2 && again[3].when == start + 30s));
  REQUIRE(kept.at(start + 5min + 25s).size() == 1);
  kept.note({50, "s", 1ms}, 0, start + 10min);
  CHECK(kept.at(start + 10min).size() == 1);
}
