// The order of an epoch: a keyed permutation of [0, n), computed index by index, so no process holds a list of all
// samples. Used by plan.
#pragma once

#include "runtime/dataset/order/philox.hpp"

#include <array>
#include <cstdint>

namespace penstock {

/// A bijection of [0, n), 1 <= n <= 2^63, chosen by (seed, epoch) or by another stream of random numbers. Takes O(1)
/// memory and about 50 ns per index.
///
/// A generalised Feistel network (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002): an index is written as
/// left * columns + right with rows * columns >= n, and each half in turn is shifted by a keyed hash of the other. A result outside
/// [0, n) goes through the network again (cycle walking). This is rare, because rows * columns < n + sqrt(n) + 2.
class permutation {
 public:
  permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) noexcept
      : permutation(n, philox_stream(random_domain::shuffle, seed, epoch, 0)) {}
  permutation(std::uint64_t n, const philox_stream& keys) noexcept;

  /// index < n.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const noexcept;

 private:
  static constexpr std::size_t rounds = 8;

  std::uint64_t n_;
  std::uint64_t rows_;  ///< even, so that odd permutations are possible too
  std::uint64_t columns_;
  std::array<std::array<std::uint64_t, 2>, rounds> keys_;
};

}  // namespace penstock
