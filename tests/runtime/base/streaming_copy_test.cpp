#include "runtime/base/streaming_copy.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace penstock;

namespace {

constexpr std::byte untouched{0xee};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i * 7 + i / 251) & 0x7fU);
  return made;
}

/// Copies `bytes` bytes to an address with remainder `to_offset` modulo a cache line. True if exactly these bytes were written.
bool arrives_exactly(std::size_t bytes, std::size_t to_offset, std::size_t from_offset) {
  const std::vector<std::byte> source = pattern(from_offset + bytes);
  const auto from = std::span(source).subspan(from_offset, bytes);
  std::vector<std::byte> room(bytes + 256, untouched);
  const std::size_t first = 64 + to_offset + (64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64) % 64;
  streaming_copy(std::span(room).subspan(first, bytes), from);
  const auto is_untouched = [](std::byte b) { return b == untouched; };
  const auto begin = room.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
  return std::equal(begin, end, from.begin(), from.end()) && std::all_of(room.begin(), begin, is_untouched) &&
         std::all_of(end, room.end(), is_untouched);
}

}  // namespace

TEST_CASE("a streaming copy writes exactly the given bytes, for any number and alignment") {
  for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
    for (const std::size_t to_offset : {0, 1, 16, 63}) {
      INFO(bytes << " bytes to offset " << to_offset);
      REQUIRE(arrives_exactly(bytes, to_offset, 0));
      REQUIRE(arrives_exactly(bytes, to_offset, 5));
    }
  }
  for (const std::size_t bytes : {65'536, 1'000'000, 1'048'577}) {
    INFO(bytes << " bytes");
    CHECK(arrives_exactly(bytes, 0, 16));
    CHECK(arrives_exactly(bytes, 48, 3));
  }
}
