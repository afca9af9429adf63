#include "runtime/schedule/late_reads.hpp"

#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

using namespace penstock;
using namespace penstock::schedule;
using namespace std::chrono_literals;

namespace {

constexpr steady_time reads_begin{1h};

void note_times(late_reads& reads, std::uint32_t microseconds, std::size_t times) {
  reads.note(std::vector<std::uint32_t>(times, microseconds));
}

nanoseconds sorted_out(std::vector<std::uint32_t> all, double share) {
  std::ranges::sort(all);
  const auto allowed = static_cast<std::size_t>(share * static_cast<double>(all.size()));
  return std::chrono::microseconds(all[all.size() - 1 - std::min(allowed, all.size() - 1)]);
}

}  // namespace

TEST_CASE("no sample is late before enough samples are known") {
  late_reads reads;
  note_times(reads, 1000, late_reads::peers_min - 1);
  CHECK_FALSE(reads.limit());
  CHECK(reads.late(std::vector<read_under_way>{{3, reads_begin}}, reads_begin + 24h).empty());
  note_times(reads, 1000, 1);
  CHECK(reads.late(std::vector<read_under_way>{{3, reads_begin}}, reads_begin + 24h) == std::set<std::uint32_t>{3});
}

TEST_CASE("a sample is late when it takes twice as long as the 99.9th percentile") {
  late_reads reads;
  note_times(reads, 100'000, 2000);
  const std::vector<read_under_way> two{{1, reads_begin}, {2, reads_begin + 100ms}};
  CHECK(reads.late(two, reads_begin + 200ms).empty());
  CHECK(reads.late(two, reads_begin + 230ms) == std::set<std::uint32_t>{1});
  CHECK(reads.late(two, reads_begin + 330ms) == std::set<std::uint32_t>{1, 2});
}

TEST_CASE("short samples are late only beyond the minimum limit") {
  late_reads reads;
  note_times(reads, 5, 2000);
  CHECK(reads.limit() == late_reads::limit_min);
}

TEST_CASE("stalls in 2 of 1000 samples do not raise the limit above their own length") {
  late_reads reads;
  for (int i = 0; i < 20; ++i) {
    note_times(reads, 80'000, 998);
    note_times(reads, 2'000'000, 2);
  }
  REQUIRE(reads.limit());
  CHECK(*reads.limit() < 400ms);
}

TEST_CASE("if every twentieth sample takes 20 times as long, those samples are not late") {
  late_reads reads;
  for (int i = 0; i < 200; ++i) {
    note_times(reads, 10'000, 95);
    note_times(reads, 200'000, 5);
  }
  CHECK(*reads.limit() >= 400ms);
}

TEST_CASE("old times lose weight") {
  late_reads reads;
  note_times(reads, 1'000'000, 1000);
  note_times(reads, 20'000, 1'000'000);
  CHECK(*reads.limit() == late_reads::limit_min);
}

TEST_CASE("the estimated percentiles are within an eighth of the exact ones, for any samples") {
  std::mt19937_64 random(testing::seed_of_this_run("percentiles"));
  std::uint64_t steps = 0;
  while (steps < 300'000) {
    late_reads reads;
    std::vector<std::uint32_t> all;  // too few samples for old ones to lose weight
    const std::size_t count = 1 + random() % 20'000;
    const unsigned bits = 1 + random() % 32;
    while (all.size() < count) {
      const auto one = static_cast<std::uint32_t>((random() & 0xffff'ffffU) >> (32 - bits) >> random() % 4);
      all.push_back(one);
      reads.note({&one, 1});
      ++steps;
    }
    for (const double share : {0.0, 0.001, 0.01, 0.5}) {
      const nanoseconds found = reads.longer_than_all_but(share);
      const nanoseconds right = sorted_out(all, share);
      CAPTURE(count, bits, share);
      REQUIRE(found >= right);
      REQUIRE(found <= right + right / 8);
    }
    REQUIRE(reads.limit().has_value() == (count >= late_reads::peers_min));
    REQUIRE(reads.pause() >= 10ms);
    REQUIRE(reads.pause() <= 250ms);
    if (!reads.limit()) continue;
    REQUIRE(*reads.limit() >= late_reads::limit_min);
    // Reads that began before the limit are late, and no others are.
    std::vector<read_under_way> now_read;
    for (std::uint32_t w = 0; w < 64; ++w)
      now_read.push_back({w, reads_begin + nanoseconds(static_cast<std::int64_t>(random() % (3 * reads.limit()->count())))});
    const steady_time now = reads_begin + 3 * *reads.limit();
    const auto late = reads.late(now_read, now);
    for (const read_under_way& one : now_read)
      REQUIRE(late.contains(one.worker) == (now - one.since > *reads.limit()));
  }
}
