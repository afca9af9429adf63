#include "runtime/dataset/order/shuffle.hpp"

#include "runtime/dataset/order/wide_math.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

/// A keyed hash of one half, spread evenly over [0, bound): murmur3's finaliser, with one half of the key
/// added before it and the other mixed in after the first multiplication.
std::uint64_t keyed_below(std::uint64_t half, const std::array<std::uint64_t, 2>& key,
                          std::uint64_t bound) noexcept {
  std::uint64_t x = half + key[0];
  x ^= x >> 33U;
  x *= 0xff51afd7ed558ccdULL;
  x ^= (x >> 33U) ^ key[1];
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33U;
  x *= 0x9e3779b97f4a7c15ULL;
  return scaled_below(x, bound);
}

/// (value + shift) mod bound, both below bound <= 2^33.
std::uint64_t rotate(std::uint64_t value, std::uint64_t shift, std::uint64_t bound) noexcept {
  const std::uint64_t sum = value + shift;
  return sum >= bound ? sum - bound : sum;
}

/// The smallest r with r * r >= n. sqrt() need only be close, because the loops correct it.
std::uint64_t ceil_sqrt(std::uint64_t n) noexcept {
  auto r = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (r > 0 && static_cast<uint128>(r - 1) * (r - 1) >= n) --r;
  while (static_cast<uint128>(r) * r < n) ++r;
  return r;
}

}  // namespace

permutation::permutation(std::uint64_t n, const philox_stream& stream) noexcept
    : n_(n),
      rows_(std::max<std::uint64_t>(2, (ceil_sqrt(n) + 1) / 2 * 2)),
      columns_((n + rows_ - 1) / rows_) {
  for (std::size_t round = 0; round < rounds; ++round) {
    const philox_words words = stream.block_at(round);
    keys_[round] = {philox_stream::as_u64(words, 0), philox_stream::as_u64(words, 1)};
  }
}

std::uint64_t permutation::operator()(std::uint64_t index) const noexcept {
  do {
    std::uint64_t left = index / columns_;
    std::uint64_t right = index % columns_;
    for (std::size_t round = 0; round < rounds; round += 2) {
      left = rotate(left, keyed_below(right, keys_[round], rows_), rows_);
      right = rotate(right, keyed_below(left, keys_[round + 1], columns_), columns_);
    }
    index = left * columns_ + right;
  } while (index >= n_);
  return index;
}

}  // namespace penstock
