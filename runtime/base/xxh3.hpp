// Computes the digest of batches, blocks and lines: XXH3 with 64 bits and seed 0, as XXH3_64bits() of xxhash.h
// computes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock {

/// The digest of bytes that arrive in pieces. A copy continues independently.
class xxh3 {
 public:
  xxh3() noexcept { reset(); }
  void reset() noexcept;
  /// About 46 GB/s with AVX2, 17 without, if the bytes are in a cache.
  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view bytes) noexcept { add(std::as_bytes(std::span(bytes))); }
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

/// The digest of bytes that are all in memory.
[[nodiscard]] std::uint64_t xxh3_of(std::span<const std::byte> bytes) noexcept;

}  // namespace penstock
