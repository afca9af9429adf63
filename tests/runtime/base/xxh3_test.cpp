#include "runtime/base/xxh3.hpp"

#include "runtime/base/xxh3_functions.hpp"
#include "tests/random_seed.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>
#include <vector>

using namespace penstock;

TEST_CASE("a digest equals the library's, however the bytes are split and aligned") {
  std::mt19937_64 random(testing::seed_of_this_run("xxh3"));
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  std::vector<std::byte> memory(300'000);
  for (std::byte& one : memory) one = static_cast<std::byte>(random());
  for (int round = 0; round < 300; ++round) {
    const std::size_t longest = round % 3 == 0 ? 300 : 200'000;  // inputs of up to 240 bytes use another algorithm
    const std::span<const std::byte> bytes = std::span(memory).subspan(below(100), below(longest));
    const std::uint64_t expected = XXH3_64bits(bytes.data(), bytes.size());
    REQUIRE(xxh3_of(bytes) == expected);
    xxh3 digest;
    digest.add("what was there before");
    digest.reset();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = std::min(bytes.size() - at, 1 + below(round % 2 == 0 ? 100 : 70'000));
      digest.add(bytes.subspan(at, size));
      at += size;
    }
    REQUIRE(digest.value() == expected);
  }
}

TEST_CASE("a copy of a digest continues independently") {
  xxh3 digest;
  digest.add("batch");
  xxh3 other = digest;
  other.add("es");
  CHECK(digest.value() == XXH3_64bits("batch", 5));
  CHECK(other.value() == XXH3_64bits("batches", 7));
}
