#include "runtime/device/host_convert.hpp"

#include "runtime/base/check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_CONVERT_AVX2 __attribute__((target("avx2,fma,f16c")))
#endif

namespace penstock::device {
namespace {

struct image_row {
  const std::uint8_t* from = nullptr;
  std::byte* to = nullptr;
  bool mirrored = false;
};

/// Calls `each` with every row of the batch.
template <class Each>
void for_each_row(const convert_step& step, const std::byte* slot, std::byte* buffer, std::uint32_t rows,
                  std::size_t element_bytes, Each each) {
  const std::size_t elements = std::size_t{step.height} * step.width * step.channels;
  for (std::uint32_t r = 0; r < rows; ++r) {
    each(image_row{reinterpret_cast<const std::uint8_t*>(slot + step.from) + r * elements,
                   buffer + step.to + r * elements * element_bytes,
                   step.flip_flags && slot[*step.flip_flags + r] != std::byte{0}});
  }
}

/// A table of all results of a conversion step, for 256 inputs per channel. The results have the same bits as the kernel's.
template <class T>
class conversion_table {
 public:
  template <class Round>
  conversion_table(const convert_step& step, Round round) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (unsigned x = 0; x < 256; ++x)
        values_[c][x] = round(normalised(static_cast<std::uint8_t>(x), step.scale[c], step.shift[c]));
    }
  }
  [[nodiscard]] const std::array<T, 256>& channel(std::uint32_t c) const { return values_[c % 3]; }

 private:
  std::array<std::array<T, 256>, 3> values_{};
};

template <class T>
void convert_row(const convert_step& step, const conversion_table<T>& table, const image_row& row) {
  const std::uint32_t w = step.width;
  const std::uint32_t channels = step.channels;
  T* const to = reinterpret_cast<T*>(row.to);
  for (std::uint32_t c = 0; c < channels; ++c) {
    const auto& values = table.channel(c);
    for (std::uint32_t y = 0; y < step.height; ++y) {
      const std::uint8_t* line = row.from + std::size_t{y} * w * channels + c;
      const bool planar = step.layout == image_layout::nchw;
      T* out = planar ? to + (std::size_t{c} * step.height + y) * w : to + std::size_t{y} * w * channels + c;
      const std::size_t out_step = planar ? 1 : channels;
      for (std::uint32_t x = 0; x < w; ++x)
        out[x * out_step] = values[line[std::size_t{row.mirrored ? w - 1 - x : x} * channels]];
    }
  }
}

template <class T, class Round>
void convert_rows(const convert_step& step, const std::byte* slot, std::byte* buffer, std::uint32_t rows,
                  Round round) {
  const conversion_table<T> table(step, round);
  for_each_row(step, slot, buffer, rows, sizeof(T),
               [&](const image_row& row) { convert_row(step, table, row); });
}

/// Mirrors a line of pixels or splits it by channel, from pixel `begin` on.
struct plain_lines {
  static void mirror(const std::uint8_t* from, std::uint32_t width, std::uint32_t channels, std::uint8_t* to,
                     std::uint32_t begin = 0) {
    for (std::uint32_t x = begin; x < width; ++x)
      std::memcpy(to + std::size_t{x} * channels, from + std::size_t{width - 1 - x} * channels, channels);
  }
  static void split(const std::uint8_t* from, std::uint32_t width, std::uint32_t channels, std::uint8_t* to,
                    std::size_t plane, std::uint32_t begin = 0) {
    for (std::uint32_t c = 0; c < channels; ++c)
      for (std::uint32_t x = begin; x < width; ++x) to[c * plane + x] = from[std::size_t{x} * channels + c];
  }
};

/// uint8 to uint8: moves bytes without computing anything.
template <class Lines>
void move_rows(const convert_step& step, const std::byte* slot, std::byte* buffer, std::uint32_t rows) {
  const std::uint32_t channels = step.channels;
  const std::size_t line_bytes = std::size_t{step.width} * channels;
  const std::size_t plane = std::size_t{step.width} * step.height;
  const bool planar = step.layout == image_layout::nchw && channels != 1;
  std::vector<std::uint8_t> mirrored(line_bytes);
  for_each_row(step, slot, buffer, rows, 1, [&](const image_row& row) {
    auto* const to = reinterpret_cast<std::uint8_t*>(row.to);
    if (!planar && !row.mirrored) {
      std::memcpy(to, row.from, line_bytes * step.height);
      return;
    }
    for (std::uint32_t y = 0; y < step.height; ++y) {
      const std::uint8_t* line = row.from + y * line_bytes;
      if (row.mirrored) {
        std::uint8_t* const into = planar ? mirrored.data() : to + y * line_bytes;
        Lines::mirror(line, step.width, channels, into);
        line = into;
      }
      if (planar) Lines::split(line, step.width, channels, to + std::size_t{y} * step.width, plane);
    }
  });
}

#if defined(__x86_64__)

/// The positions of each channel's bytes in three vectors of sixteen.
constexpr auto split_masks = [] {
  std::array<std::array<std::array<std::int8_t, 16>, 3>, 3> masks{};
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t at = 3 * i + channel;
      for (std::size_t part = 0; part < 3; ++part)
        masks[channel][part][i] = at / 16 == part ? static_cast<std::int8_t>(at % 16) : std::int8_t{-1};
    }
  }
  return masks;
}();

PENSTOCK_CONVERT_AVX2 inline __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
PENSTOCK_CONVERT_AVX2 inline void store_16(void* to, __m128i value) {
  _mm_storeu_si128(static_cast<__m128i*>(to), value);
}

struct avx2_lines {
  PENSTOCK_CONVERT_AVX2 static void mirror(const std::uint8_t* from, std::uint32_t width,
                                           std::uint32_t channels, std::uint8_t* to) {
    std::uint32_t x = 0;
    if (channels == 3) {
      // The vector has five pixels and the byte before them. The next store overwrites the extra byte after these pixels.
      const __m128i reversed = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0);
      for (; width - x >= 6; x += 5) {
        const __m128i five = load_16(from + std::size_t{width - x - 5} * 3 - 1);
        store_16(to + std::size_t{x} * 3, _mm_shuffle_epi8(five, reversed));
      }
    }
    plain_lines::mirror(from, width, channels, to, x);
  }

  PENSTOCK_CONVERT_AVX2 static void split(const std::uint8_t* from, std::uint32_t width,
                                          std::uint32_t channels, std::uint8_t* to, std::size_t plane) {
    std::uint32_t x = 0;
    if (channels == 3) {
      for (; width - x >= 16; x += 16) {
        const std::uint8_t* const pixels = from + std::size_t{x} * 3;
        const __m128i a = load_16(pixels);
        const __m128i b = load_16(pixels + 16);
        const __m128i c = load_16(pixels + 32);
        for (std::size_t channel = 0; channel < 3; ++channel) {
          const auto& masks = split_masks[channel];
          const __m128i in_a = _mm_shuffle_epi8(a, load_16(masks[0].data()));
          const __m128i in_b = _mm_shuffle_epi8(b, load_16(masks[1].data()));
          const __m128i in_c = _mm_shuffle_epi8(c, load_16(masks[2].data()));
          store_16(to + channel * plane + x, _mm_or_si128(_mm_or_si128(in_a, in_b), in_c));
        }
      }
    }
    plain_lines::split(from, width, channels, to, plane, x);
  }
};

struct as_float32 {
  using element = float;
  PENSTOCK_CONVERT_AVX2 static void store_8(float* to, __m256 y) { _mm256_storeu_ps(to, y); }
  static float one(float y) { return y; }
};

struct as_float16 {
  using element = std::uint16_t;
  PENSTOCK_CONVERT_AVX2 static void store_8(std::uint16_t* to, __m256 y) {
    store_16(to, _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static std::uint16_t one(float y) { return to_float16(y); }
};

struct as_bfloat16 {
  using element = std::uint16_t;
  PENSTOCK_CONVERT_AVX2 static void store_8(std::uint16_t* to, __m256 y) {
    // Like to_bfloat16(), except that it does not handle NaN.
    const __m256i bits = _mm256_castps_si256(y);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i upper = _mm256_srli_epi32(sum, 16);
    store_16(to, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
  }
  static std::uint16_t one(float y) { return to_bfloat16(y); }
};

struct line_factors {
  const float* scale;
  const float* shift;
};

template <class As>
PENSTOCK_CONVERT_AVX2 void convert_line(const std::uint8_t* from, std::size_t count, line_factors factors,
                                        typename As::element* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i));
    const __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    As::store_8(to + i,
                _mm256_fmadd_ps(x, _mm256_loadu_ps(factors.scale + i), _mm256_loadu_ps(factors.shift + i)));
  }
  for (; i < count; ++i) to[i] = As::one(normalised(from[i], factors.scale[i], factors.shift[i]));
}

template <class As>
void convert_rows_avx2(const convert_step& step, const std::byte* slot, std::byte* buffer,
                       std::uint32_t rows) {
  const std::uint32_t w = step.width;
  const std::uint32_t channels = step.channels;
  const std::size_t line_bytes = std::size_t{w} * channels;
  const bool planar = step.layout == image_layout::nchw && channels != 1;
  // One factor for each element of a line, in output order.
  std::vector<float> scale(line_bytes);
  std::vector<float> shift(line_bytes);
  for (std::size_t i = 0; i < line_bytes; ++i) {
    const std::size_t channel = (planar ? i / w : i % channels) % 3;
    scale[i] = step.scale[channel];
    shift[i] = step.shift[channel];
  }
  std::vector<std::uint8_t> mirrored(line_bytes);
  std::vector<std::uint8_t> split(line_bytes);
  for_each_row(step, slot, buffer, rows, sizeof(typename As::element), [&](const image_row& row) {
    auto* const to = reinterpret_cast<typename As::element*>(row.to);
    for (std::uint32_t y = 0; y < step.height; ++y) {
      const std::uint8_t* line = row.from + y * line_bytes;
      if (row.mirrored) {
        avx2_lines::mirror(line, w, channels, mirrored.data());
        line = mirrored.data();
      }
      if (!planar) {
        convert_line<As>(line, line_bytes, {scale.data(), shift.data()}, to + y * line_bytes);
        continue;
      }
      avx2_lines::split(line, w, channels, split.data(), w);
      for (std::size_t c = 0; c < channels; ++c) {
        convert_line<As>(split.data() + c * w, w, {scale.data() + c * w, shift.data() + c * w},
                         to + (c * step.height + y) * w);
      }
    }
  });
}

void convert_avx2(const convert_step& step, const std::byte* slot, std::byte* buffer, std::uint32_t rows) {
  if (step.type == dtype::uint8) return move_rows<avx2_lines>(step, slot, buffer, rows);
  // The vector instructions round a NaN differently. With finite factors no result is a NaN.
  const auto finite = [](float factor) { return std::isfinite(factor); };
  if (!std::all_of(step.scale.begin(), step.scale.end(), finite) ||
      !std::all_of(step.shift.begin(), step.shift.end(), finite)) {
    return convert_portably(step, slot, buffer, rows);
  }
  switch (step.type) {
    case dtype::float16: return convert_rows_avx2<as_float16>(step, slot, buffer, rows);
    case dtype::bfloat16: return convert_rows_avx2<as_bfloat16>(step, slot, buffer, rows);
    default: return convert_rows_avx2<as_float32>(step, slot, buffer, rows);
  }
}

#endif

}  // namespace

void convert_portably(const convert_step& step, const std::byte* slot, std::byte* buffer,
                      std::uint32_t rows) {
  switch (step.type) {
    case dtype::uint8: return move_rows<plain_lines>(step, slot, buffer, rows);
    case dtype::float16: return convert_rows<std::uint16_t>(step, slot, buffer, rows, to_float16);
    case dtype::bfloat16: return convert_rows<std::uint16_t>(step, slot, buffer, rows, to_bfloat16);
    case dtype::float32: return convert_rows<float>(step, slot, buffer, rows, [](float y) { return y; });
    default: PENSTOCK_CHECK(false, "image type {}", static_cast<int>(step.type));
  }
}

host_conversion best_conversion() noexcept {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                           __builtin_cpu_supports("f16c") != 0;
  if (fast) return convert_avx2;
#endif
  return convert_portably;
}

}  // namespace penstock::device
