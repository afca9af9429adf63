// 64 x 64 -> 128 bit multiplication, for uniform choice from a range without a division. Used by the plan and
// shuffle.
#pragma once

#include <cstdint>

namespace penstock {

__extension__ using uint128 = unsigned __int128;

/// floor(bits * bound / 2^64): maps uniform random bits to [0, bound) with a bias below bound / 2^64.
constexpr std::uint64_t scaled_below(std::uint64_t bits, std::uint64_t bound) noexcept {
  return static_cast<std::uint64_t>(static_cast<uint128>(bits) * bound >> 64U);
}

}  // namespace penstock
