// Philox4x32-10 as a function from a position in the stream to 16 random bytes: the generator for sample
// draws, the shuffle, replacement draws and synthetic bytes. Used inside runtime/dataset; users see
// penstock::random_source.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// The purpose of a draw. Two domains never share a block, so the shuffle cannot correlate with augmentation.
enum class random_domain : std::uint8_t {
  sample = 0,       ///< random_source: what datasets draw
  shuffle = 1,      ///< round keys of the epoch's permutation
  replacement = 2,  ///< another index for a bad sample
  fill = 3,         ///< bytes of synthetic samples
  weighted = 4,     ///< draws of a weighted order
  window = 5,       ///< round keys of a window's blocks and of the order of shards
  balanced = 6,     ///< round keys of the order of classes, and of the samples of one class
  mixture = 7,      ///< seeds of the datasets of a mixture
};

using philox_words = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

/// Random123's Philox4x32 with 10 rounds.
philox_words philox_block(philox_words counter, philox_key key) noexcept;

/// The counter and key of block 0 of a stream.
///
///   counter = { domain << 24 | block, epoch (low 32 bits), item (low), item (high) }     block < 2^24
///   key     = { seed (low), seed (high) + epoch (high 32 bits) }
///
/// Blocks beyond 2^24 (256 MiB of one sample's draws) continue with key[0] + 1: see block_at. Epochs beyond
/// 2^32 and such long streams may therefore coincide with another seed's stream; within one seed nothing
/// repeats.
struct philox_stream {
  philox_words counter;
  philox_key key;

  philox_stream(random_domain domain, std::uint64_t seed, std::uint64_t epoch, std::uint64_t item) noexcept
      : counter{static_cast<std::uint32_t>(domain) << 24U, static_cast<std::uint32_t>(epoch),
                static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(item >> 32U)},
        key{static_cast<std::uint32_t>(seed),
            static_cast<std::uint32_t>(seed >> 32U) + static_cast<std::uint32_t>(epoch >> 32U)} {}

  [[nodiscard]] philox_words block_at(std::uint64_t block) const noexcept {
    return philox_block(
        {counter[0] | static_cast<std::uint32_t>(block & 0xffffffU), counter[1], counter[2], counter[3]},
        {key[0] + static_cast<std::uint32_t>(block >> 24U), key[1]});
  }
  /// Words 2 * i and 2 * i + 1 of a block as one number.
  [[nodiscard]] static std::uint64_t as_u64(const philox_words& words, std::size_t i) noexcept {
    return words[2 * i] | static_cast<std::uint64_t>(words[2 * i + 1]) << 32U;
  }
};

/// Writes the stream's blocks, from block 0, as little-endian bytes.
/// Writes several GB/s, because blocks are computed in parallel (SIMD).
void fill_random(const philox_stream& stream, std::span<std::byte> bytes) noexcept;

}  // namespace penstock
