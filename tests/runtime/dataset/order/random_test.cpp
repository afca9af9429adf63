#include "runtime/dataset/order/philox.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

using namespace penstock;

TEST_CASE("Philox4x32-10 gives the published vectors") {
  // kat_vectors of Random123 1.14.
  const philox_words zeros = philox_block({0, 0, 0, 0}, {0, 0});
  CHECK(zeros == philox_words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const philox_words ones = philox_block({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U});
  CHECK(ones == philox_words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  const philox_words pi =
      philox_block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  CHECK(pi == philox_words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a random source returns the blocks of its stream in order, even beyond 2^24 of them") {
  random_source random(7, 3, 1ULL << 40U);
  const philox_stream stream(random_domain::sample, 7, 3, 1ULL << 40U);
  for (std::uint64_t block = 0; block < 100; ++block) {
    for (const std::uint32_t word : stream.block_at(block)) REQUIRE(random() == word);
  }
  constexpr std::uint64_t edge = 1ULL << 24U;
  for (std::uint64_t draw = 400; draw < 4 * (edge - 1); ++draw) random();
  for (std::uint64_t block = edge - 1; block < edge + 2; ++block) {
    for (const std::uint32_t word : stream.block_at(block)) REQUIRE(random() == word);
  }
  CHECK(stream.block_at(edge) != stream.block_at(0));
}

TEST_CASE("seed, epoch, sample and domain all change the draws, including the high halves") {
  std::set<std::uint32_t> first_words;
  const std::array<std::uint64_t, 4> values{0, 1, 1ULL << 31U, 1ULL << 32U};
  for (const std::uint64_t seed : values) {
    for (const std::uint64_t sample : values) {
      for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1}}) {
        first_words.insert(random_source(seed, epoch, sample)());
      }
    }
  }
  CHECK(first_words.size() == 32);
  CHECK(random_source(1, 1ULL << 32U, 0)() != random_source(1, 0, 0)());
  const philox_stream sample(random_domain::sample, 1, 2, 3);
  const philox_stream fill(random_domain::fill, 1, 2, 3);
  CHECK(sample.block_at(0) != fill.block_at(0));
}

TEST_CASE("uniform draws lie between 0 and 1, are evenly spread and have more bits than a float") {
  random_source random(11, 0, 0);
  std::array<int, 16> counts{};
  bool fine = false;
  for (int i = 0; i < 16000; ++i) {
    const double u = random.uniform();
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    ++counts[static_cast<std::size_t>(u * 16)];
    fine = fine || static_cast<double>(static_cast<float>(u)) != u;
  }
  CHECK(fine);
  for (const int count : counts) CHECK((count > 850 && count < 1150));  // 1000 +- 4.9 sigma
}

TEST_CASE("below() returns each number under its bound about equally often and never the bound") {
  random_source random(12, 0, 0);
  for (const std::uint32_t bound : {1U, 2U, 3U, 7U, 10U}) {
    std::vector<int> counts(bound, 0);
    for (std::uint32_t i = 0; i < 2000 * bound; ++i) {
      const std::uint32_t drawn = random.below(bound);
      REQUIRE(drawn < bound);
      ++counts[drawn];
    }
    for (const int count : counts) CHECK((count > 1750 && count < 2250));
  }
  // A bound at which a plain multiplication would have a bias of a third.
  constexpr std::uint32_t awkward = 0xc0000000U;
  int low = 0;
  for (int i = 0; i < 10000; ++i) low += random.below(awkward) < awkward / 2 ? 1 : 0;
  CHECK((low > 4750 && low < 5250));
}

TEST_CASE("filling any number of bytes in bulk gives the same bytes as block by block") {
  const philox_stream stream(random_domain::fill, 0x123456789abcdefULL, 5, 99);
  for (const std::size_t size : {0UL, 1UL, 15UL, 16UL, 127UL, 128UL, 129UL, 1000UL}) {
    std::vector<std::byte> filled(size + 1, std::byte{0xee});
    fill_random(stream, std::span(filled).first(size));
    CHECK(filled.back() == std::byte{0xee});
    for (std::size_t at = 0; at < size; at += 16) {
      const philox_words words = stream.block_at(at / 16);
      REQUIRE(std::memcmp(filled.data() + at, words.data(), std::min<std::size_t>(16, size - at)) == 0);
    }
  }
}
