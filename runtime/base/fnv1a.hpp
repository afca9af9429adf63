// A hash with the same value in every build and on every host, for names derived from
// other names. Not cryptographic: do not use it where someone could gain from a collision.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

}  // namespace penstock
