// Random bytes in bulk. Computes eight Philox blocks at a time if the processor can; the bits are the same as one at a time.
#include "runtime/dataset/order/philox.hpp"

#include <Random123/philox.h>

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_AVX2 __attribute__((target("avx2")))
#endif

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are stored in memory order");

constexpr std::size_t lanes = 8;
constexpr std::size_t group_bytes = lanes * sizeof(philox_words);
static_assert((std::uint64_t{1} << 24U) % lanes == 0, "a group of blocks never straddles a change of key");

using group_filler = void (*)(const philox_stream& stream, std::uint64_t block, std::byte* out);

void fill_group_portable(const philox_stream& stream, std::uint64_t block, std::byte* out) {
  for (std::size_t i = 0; i < lanes; ++i) {
    const philox_words words = stream.block_at(block + i);
    std::memcpy(out + i * sizeof words, words.data(), sizeof words);
  }
}

#if defined(__x86_64__)

struct wide_product {
  __m256i high;
  __m256i low;
};

/// 32 x 32 -> 64 bits in eight lanes. One instruction multiplies only every other lane.
PENSTOCK_AVX2 inline wide_product multiply(__m256i x, __m256i by) {
  const __m256i even = _mm256_mul_epu32(x, by);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), by);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
}

PENSTOCK_AVX2 inline __m256i all_lanes(std::uint32_t value) {
  return _mm256_set1_epi32(static_cast<int>(value));
}

PENSTOCK_AVX2 inline void store(std::byte* at, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
}

PENSTOCK_AVX2
void fill_group_avx2(const philox_stream& stream, std::uint64_t block, std::byte* out) {
  __m256i a = _mm256_add_epi32(all_lanes(stream.counter[0] | static_cast<std::uint32_t>(block & 0xffffffU)),
                               _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i b = all_lanes(stream.counter[1]);
  __m256i c = all_lanes(stream.counter[2]);
  __m256i d = all_lanes(stream.counter[3]);
  std::uint32_t key0 = stream.key[0] + static_cast<std::uint32_t>(block >> 24U);
  std::uint32_t key1 = stream.key[1];
  for (int round = 0; round < 10; ++round) {
    const wide_product first = multiply(a, all_lanes(PHILOX_M4x32_0));
    const wide_product second = multiply(c, all_lanes(PHILOX_M4x32_1));
    a = _mm256_xor_si256(_mm256_xor_si256(second.high, b), all_lanes(key0));
    c = _mm256_xor_si256(_mm256_xor_si256(first.high, d), all_lanes(key1));
    b = second.low;
    d = first.low;
    key0 += PHILOX_W32_0;
    key1 += PHILOX_W32_1;
  }
  // Transposes four words of eight blocks into eight blocks of four words.
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b);
  const __m256i ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d);
  const __m256i cd_high = _mm256_unpackhi_epi32(c, d);
  const __m256i blocks[] = {_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
                            _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)};
  for (std::size_t i = 0; i < 4; ++i) {
    store(out + i * sizeof(philox_words), _mm256_castsi256_si128(blocks[i]));
    store(out + (i + 4) * sizeof(philox_words), _mm256_extracti128_si256(blocks[i], 1));
  }
}

#endif

group_filler best_filler() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) return fill_group_avx2;
#endif
  return fill_group_portable;
}

}  // namespace

void fill_random(const philox_stream& stream, std::span<std::byte> bytes) noexcept {
  static const group_filler fill_group = best_filler();
  std::uint64_t block = 0;
  for (; bytes.size() >= group_bytes; block += lanes) {
    fill_group(stream, block, bytes.data());
    bytes = bytes.subspan(group_bytes);
  }
  std::array<std::byte, group_bytes> rest{};
  if (bytes.empty()) return;
  fill_group(stream, block, rest.data());
  std::memcpy(bytes.data(), rest.data(), bytes.size());
}

}  // namespace penstock
