#include "runtime/dataset/picture/resample_kernels.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_AVX2 __attribute__((target("avx2")))
#endif

namespace penstock {
namespace {

// Weights are not negative and add up to 1 << shift, so a sum of
// weighted bytes is at most 255 << shift and needs no clamping.

void horizontal_portable(const std::uint8_t* rgbx, const std::uint32_t* first, const std::int16_t* weights,
                         std::uint32_t taps, unsigned shift, std::uint32_t pixels, std::uint8_t* rgb) {
  const std::int32_t half = 1 << (shift - 1);
  for (std::uint32_t i = 0; i < pixels; ++i, weights += taps, rgb += 3) {
    const std::uint8_t* in = rgbx + std::size_t{first[i]} * 4;
    std::int32_t red = half;
    std::int32_t green = half;
    std::int32_t blue = half;
    for (std::uint32_t k = 0; k < taps; ++k, in += 4) {
      red += in[0] * weights[k];
      green += in[1] * weights[k];
      blue += in[2] * weights[k];
    }
    rgb[0] = static_cast<std::uint8_t>(red >> shift);
    rgb[1] = static_cast<std::uint8_t>(green >> shift);
    rgb[2] = static_cast<std::uint8_t>(blue >> shift);
  }
}

void vertical_portable(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                       unsigned shift, std::size_t bytes, std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; ++i) {
    std::int32_t sum = 1 << (shift - 1);
    for (std::uint32_t k = 0; k < taps; ++k) sum += rows[k][i] * weights[k];
    out[i] = static_cast<std::uint8_t>(sum >> shift);
  }
}

#if defined(__x86_64__)

/// Four pixels times four weights, as sums of pairs: {r01 r23 g01 g23 | b01 b23 x01 x23}.
PENSTOCK_AVX2 inline __m256i four_taps(const std::uint8_t* rgbx, const std::int16_t* weights) {
  // Groups the bytes by channel and widens them to 16 bits; red and green in the lower half.
  const __m256i by_channel = _mm256_setr_epi8(0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13, -1,  //
                                              2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15, -1);
  const __m256i pixels = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rgbx)));
  std::int64_t four_weights = 0;
  std::memcpy(&four_weights, weights, sizeof four_weights);
  return _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, by_channel), _mm256_set1_epi64x(four_weights));
}

PENSTOCK_AVX2 inline __m256i pixel_sums(const std::uint8_t* row, std::uint32_t first,
                                        const std::int16_t* weights, std::uint32_t taps) {
  const std::uint8_t* const rgbx = row + std::size_t{first} * 4;
  __m256i sum = four_taps(rgbx, weights);
  for (std::size_t k = 4; k < taps; k += 4) sum = _mm256_add_epi32(sum, four_taps(rgbx + 4 * k, weights + k));
  return sum;
}

PENSTOCK_AVX2
void horizontal_avx2(const std::uint8_t* rgbx, const std::uint32_t* first, const std::int16_t* weights,
                     std::uint32_t taps, unsigned shift, std::uint32_t pixels, std::uint8_t* rgb) {
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m128i without_x = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  std::uint32_t i = 0;
  for (; i + 4 <= pixels; i += 4, weights += 4 * std::size_t{taps}, rgb += 12) {
    const __m256i sum0 = pixel_sums(rgbx, first[i], weights, taps);
    const __m256i sum1 = pixel_sums(rgbx, first[i + 1], weights + taps, taps);
    const __m256i sum2 = pixel_sums(rgbx, first[i + 2], weights + 2 * std::size_t{taps}, taps);
    const __m256i sum3 = pixel_sums(rgbx, first[i + 3], weights + 3 * std::size_t{taps}, taps);
    // {r0 g0 r1 g1 | b0 x0 b1 x1}, and likewise for pixels 2 and 3
    __m256i left = _mm256_hadd_epi32(sum0, sum1);
    __m256i right = _mm256_hadd_epi32(sum2, sum3);
    left = _mm256_sra_epi32(_mm256_add_epi32(left, half), by);
    right = _mm256_sra_epi32(_mm256_add_epi32(right, half), by);
    const __m256i words = _mm256_packs_epi32(left, right);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i four =
        _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb), _mm_shuffle_epi8(four, without_x));
  }
  if (i < pixels) horizontal_portable(rgbx, first + i, weights, taps, shift, pixels - i, rgb);
}

PENSTOCK_AVX2
void vertical_avx2(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                   unsigned shift, std::size_t bytes, std::uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m256i zero = _mm256_setzero_si256();
  for (std::size_t i = 0; i < bytes; i += 32) {
    __m256i sum0 = half;
    __m256i sum1 = half;
    __m256i sum2 = half;
    __m256i sum3 = half;
    for (std::uint32_t k = 0; k < taps; k += 2) {
      std::int32_t two_weights = 0;
      std::memcpy(&two_weights, weights + k, sizeof two_weights);
      const __m256i pair = _mm256_set1_epi32(two_weights);
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + i));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + i));
      const __m256i low = _mm256_unpacklo_epi8(a, b);
      const __m256i high = _mm256_unpackhi_epi8(a, b);
      sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), pair));
      sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), pair));
      sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), pair));
      sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), pair));
    }
    // Unpacking changed the order; packing restores it.
    const __m256i low = _mm256_packs_epi32(_mm256_sra_epi32(sum0, by), _mm256_sra_epi32(sum1, by));
    const __m256i high = _mm256_packs_epi32(_mm256_sra_epi32(sum2, by), _mm256_sra_epi32(sum3, by));
    const __m256i finished = _mm256_packus_epi16(low, high);
    if (bytes - i >= 32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), finished);
    } else {
      alignas(32) std::uint8_t tail[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(tail), finished);
      std::memcpy(out + i, tail, bytes - i);  // `out` may end at a protected page
    }
  }
}

#endif

}  // namespace

const resample_kernels portable_kernels{horizontal_portable, vertical_portable};

const resample_kernels& best_kernels() noexcept {
#if defined(__x86_64__)
  static const resample_kernels avx2{horizontal_avx2, vertical_avx2};
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return avx2;
#endif
  return portable_kernels;
}

}  // namespace penstock
