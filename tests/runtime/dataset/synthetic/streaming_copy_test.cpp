#include "runtime/dataset/synthetic/streaming_copy.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>
#include <vector>

using namespace penstock;

TEST_CASE("a streaming copy writes every byte that it should and none beside, at any alignment and size") {
  std::mt19937 draw(11);
  std::vector<std::byte> from(streaming_bytes_min + 512);
  for (std::byte& b : from) b = static_cast<std::byte>(draw());
  std::vector<std::byte> to(from.size() + 512);
  for (int i = 0; i < 200; ++i) {
    const std::size_t bytes = i % 2 == 0 ? draw() % 300 : streaming_bytes_min + draw() % 300;
    const std::size_t source = draw() % 70;
    const std::size_t target = 1 + draw() % 200;
    std::ranges::fill(to, std::byte{0x5a});
    streaming_copy(to.data() + target, from.data() + source, bytes);
    REQUIRE(std::equal(from.begin() + source, from.begin() + source + bytes, to.begin() + target));
    REQUIRE(std::all_of(to.begin(), to.begin() + target, [](std::byte b) { return b == std::byte{0x5a}; }));
    REQUIRE(
        std::all_of(to.begin() + target + bytes, to.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}
