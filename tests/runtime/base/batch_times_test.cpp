#include "runtime/base/batch_times.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

using namespace std::chrono_literals;

steady_time at(std::chrono::milliseconds when) {
  return steady_time(1h) + when;
}

batch_passage batch(stream_position position) {
  return {0, position, position / 10, position % 10, 3, 1, 0, 8, {}, 0, 0};
}

/// Leased at `begin`; each stage follows the previous one after 1 ms.
void pass(batch_times& times, stream_position position, std::chrono::milliseconds begin) {
  times.lease(batch(position), at(begin));
  times.note_loaded(position, {1ms, 0ms}, at(begin + 2ms));
  for (std::size_t i = 3; i < batch_stages; ++i)
    times.note(position, static_cast<batch_stage>(i), at(begin + std::chrono::milliseconds(i)));
}

}  // namespace

TEST_CASE("released batches are read back with all their timestamps, in the order of release") {
  batch_times times(16);
  pass(times, 12, 0ms);
  pass(times, 11, 20ms);
  const auto passed = times.released_after(0, 10);
  REQUIRE(passed.size() == 2);
  CHECK(passed[0].position == 12);
  CHECK(passed[0].epoch == 1);
  CHECK(passed[0].sequence == 2);
  CHECK(passed[0].worker == 3);
  CHECK(passed[1].number == 2);
  for (std::size_t i = 1; i < batch_stages; ++i) CHECK(passed[0].at[i] - passed[0].at[i - 1] == 1'000'000);
  CHECK(times.released_after(1, 10).size() == 1);
  CHECK(times.released_after(0, 1).front().position == 12);
  CHECK(times.under_way().empty());
}

TEST_CASE("a batch in progress is at the stage of its last timestamp, and a new lease resets it") {
  batch_times times(16);
  times.lease(batch(5), at(0ms));
  CHECK(times.under_way().at(0).reached() == batch_stage::leased);
  times.note_loaded(5, {1ms, 0ms}, at(3ms));
  CHECK(times.under_way().at(0).reached() == batch_stage::loaded);
  times.lease(batch(5), at(9ms));
  CHECK(times.under_way().at(0).reached() == batch_stage::leased);
  times.forget();
  CHECK(times.under_way().empty());
}

TEST_CASE("a batch that workers lost keeps the time of its first lease, and one that is loaded again does not") {
  batch_times times(16);
  times.lease(batch(5), at(1ms));
  CHECK(times.find(5)->first_leased == 0);
  times.lease(batch(5), at(9ms));
  times.lease(batch(5), at(12ms));
  CHECK(times.find(5)->first_leased == at(1ms).time_since_epoch() / 1ns);
  times.lease(batch(5 + 16), at(13ms));  // another batch takes the place of batch 5
  CHECK(times.find(5 + 16)->first_leased == 0);
  times.note_loaded(5 + 16, {1ms, 0ms}, at(15ms));
  times.lease(batch(5 + 16), at(20ms));  // the batch is loaded again because its slot was needed
  CHECK(times.find(5 + 16)->first_leased == 0);
}

TEST_CASE("the ring forgets the oldest batches and ignores timestamps of forgotten ones") {
  batch_times times(4);
  for (stream_position p = 0; p < 10; ++p) pass(times, p, 0ms);
  CHECK(times.released() == 10);
  CHECK(times.released_after(0, 100).front().position == 6);
  times.note(3, batch_stage::released, at(1s));
  CHECK(times.released() == 10);
}

TEST_CASE("a worker's busy time is limited to its lease") {
  batch_times times(4);
  times.lease(batch(0), at(10ms));
  times.note_loaded(0, {24h, 0ms}, at(15ms));
  const batch_passage b = times.under_way().at(0);
  CHECK(b.time_of(batch_stage::begun) == b.time_of(batch_stage::leased));
  times.note_loaded(0, {nanoseconds(-5), 0ms}, at(15ms));
  CHECK(times.under_way().at(0).time_of(batch_stage::begun) == b.time_of(batch_stage::loaded));
}

TEST_CASE("read time never exceeds load time, and a new lease clears the read time and the demand") {
  batch_times times(4);
  times.lease(batch(1), at(0ms));
  times.note_loaded(1, {10ms, 4ms}, at(20ms));
  times.note_demanded(1, at(3ms));
  times.note_demanded(7, at(5ms));  // batch 7 is not in the ring
  CHECK(times.find(1)->reading_ns == 4'000'000);
  CHECK(times.find(1)->demanded == nanoseconds(at(3ms).time_since_epoch()).count());
  times.note_loaded(1, {10ms, 40ms}, at(20ms));
  CHECK(times.find(1)->reading_ns == 10'000'000);
  times.lease(batch(1), at(30ms));
  CHECK(times.find(1)->reading_ns == 0);
  CHECK(times.find(1)->demanded == 0);
}

TEST_CASE("histograms count each stage of each released batch once") {
  batch_times times(4);
  for (stream_position p = 0; p < 7; ++p) pass(times, p, 0ms);
  times.note(6, batch_stage::released, at(1s));
  for (const stage_histogram& h : times.histograms()) {
    CHECK(h.total == 7);
    CHECK(h.counts.size() == stage_bounds_seconds().size() + 1);
    CHECK(h.counts.at(4) == 7);  // exactly 1 ms
    CHECK(h.seconds > 0.0069);
    CHECK(h.seconds < 0.0071);
  }
}

TEST_CASE("a time counts in the first bucket whose bound it does not exceed") {
  const std::vector<double>& bounds = stage_bounds_seconds();
  const auto bucket_of = [](nanoseconds time) {
    batch_times times(1);
    times.lease(batch(0), at(0ms));
    times.note(0, batch_stage::taken, at(0ms));
    times.note(0, batch_stage::released, at(0ms) + time);
    const auto counts = times.histograms().back().counts;
    return static_cast<std::size_t>(std::ranges::find(counts, 1U) - counts.begin());
  };
  CHECK(bucket_of(0ns) == 0);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const auto bound = nanoseconds(std::llround(bounds[i] * 1e9));
    CHECK(bucket_of(bound - 1ns) == i);
    CHECK(bucket_of(bound) == i);
    CHECK(bucket_of(bound + 1ns) == i + 1);
    CHECK(bucket_of(2 * bound) == i + 1);
  }
  CHECK(bucket_of(24h * 365 * 100) == bounds.size());
}

}  // namespace penstock
