// XXH3 as compiled for one instruction set. Included only by the sources of xxh3.hpp. Each compiles xxhash.h for itself; the
// layout of its state is the same in all.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace penstock {

struct xxh3_functions {
  void (*add)(XXH3_state_t& state, const void* bytes, std::size_t size) noexcept;
  std::uint64_t (*of)(const void* bytes, std::size_t size) noexcept;
};

// These are static because each source needs its own version, which the linker must not merge with the others.
static void xxh3_add(XXH3_state_t& state, const void* bytes, std::size_t size) noexcept {
  XXH3_64bits_update(&state, bytes, size);
}
static std::uint64_t xxh3_whole(const void* bytes, std::size_t size) noexcept {
  return XXH3_64bits(bytes, size);
}
static constexpr xxh3_functions xxh3_compiled_here{xxh3_add, xxh3_whole};

extern const xxh3_functions xxh3_with_avx2;

}  // namespace penstock
