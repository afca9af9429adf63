// The conversion kernel's arithmetic: which bytes a thread reads, how it converts them, and where it writes them.
// Compiled by nvcc into the kernels (convert.cu) and by the host compiler into the tests, which run the same
// functions in a loop. Plain C++17, no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PENSTOCK_BOTH __host__ __device__ __forceinline__
#define PENSTOCK_UNROLL _Pragma("unroll")
#else
#define PENSTOCK_BOTH inline
#define PENSTOCK_UNROLL
#endif

namespace penstock::device {

enum class kernel_type { uint8, float16, bfloat16, float32 };

struct kernel_step {
  const std::uint8_t* from = nullptr;  // rows of height * width * channels bytes
  void* to = nullptr;
  const std::uint8_t* flip_flags = nullptr;  // one per row, or null
  std::uint32_t rows = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  bool planar = false;
  kernel_type type = kernel_type::float16;
  float scale[3] = {};
  float shift[3] = {};
};

// A group is a number of pixels of one row of the batch, chosen so that each thread stores 16 bytes at once, next to its
// neighbour's: four pixels of float32, else eight. If rows and lines consist of whole groups of eight, all types can use groups.
constexpr std::uint32_t group_pixels_max = 8;

template <unsigned Pixels>
struct group_word;  // a group's bytes are read as one word per channel
template <>
struct group_word<4> {
  using type = std::uint32_t;
};
template <>
struct group_word<8> {
  using type = std::uint64_t;
};

PENSTOCK_BOTH std::uint32_t pixels_of(const kernel_step& s) {
  return s.height * s.width;
}

/// Whether all groups are complete and aligned within their row (within their line, if mirrored).
inline bool goes_in_groups(const kernel_step& s) {
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(s.from) % 8 == 0 && reinterpret_cast<std::uintptr_t>(s.to) % 16 == 0;
  return (s.channels == 1 || s.channels == 3) && pixels_of(s) % group_pixels_max == 0 && aligned &&
         (s.flip_flags == nullptr || s.width % group_pixels_max == 0);
}

/// float(x) for 0 <= x <= 255 without the slow conversion unit: 2^23 + x is exact.
PENSTOCK_BOTH float as_float(std::uint32_t x) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(0x4b000000U | x) - 8388608.0F;
#else
  const std::uint32_t bits = 0x4b000000U | x;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value - 8388608.0F;
#endif
}

template <class Word>
PENSTOCK_BOTH Word load_word(const std::uint8_t* from) {
#ifdef __CUDA_ARCH__
  // The bytes are read only once, so do not cache them.
  if constexpr (sizeof(Word) == 8) {
    return __ldcs(reinterpret_cast<const unsigned long long*>(from));
  } else {
    return *reinterpret_cast<const unsigned*>(from);  // neighbouring threads read the same sectors
  }
#else
  Word word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
#endif
}

// Rounding is a policy with these members: `element`, prepare(x, scale, shift), store1() for one element, and
// store_group() for `group` elements at once.

/// Elements `group * part ...` of a group's output. In a planar output,
/// each part is one channel; otherwise the parts are consecutive.
template <class Rounding, unsigned Channels, bool Planar, bool Mirrored>
PENSTOCK_BOTH void emit_group(const kernel_step& s,
                              const typename group_word<Rounding::group>::type (&words)[Channels],
                              typename Rounding::element* to, std::uint32_t pixels) {
  constexpr unsigned group_pixels = Rounding::group;
  PENSTOCK_UNROLL
  for (unsigned part = 0; part < Channels; ++part) {
    typename Rounding::intermediate values[group_pixels];
    PENSTOCK_UNROLL
    for (unsigned i = 0; i < group_pixels; ++i) {
      const unsigned element = part * group_pixels + i;
      const unsigned pixel = Planar ? i : element / Channels;
      const unsigned channel = Planar ? part : element % Channels;
      const unsigned byte = (Mirrored ? group_pixels - 1 - pixel : pixel) * Channels + channel;
      const auto x =
          static_cast<std::uint32_t>(words[byte / group_pixels] >> (8 * (byte % group_pixels))) & 0xffU;
      values[i] = Rounding::prepare(x, s.scale[channel], s.shift[channel]);
    }
    Rounding::store_group(to + std::size_t{part} * (Planar ? pixels : group_pixels), values);
  }
}

/// Converts group number `group` of the batch, counted through all rows.
template <class Rounding, unsigned Channels, bool Planar>
PENSTOCK_BOTH void convert_group(const kernel_step& s, std::uint32_t group) {
  constexpr std::uint32_t group_pixels = Rounding::group;
  using word = typename group_word<group_pixels>::type;
  const std::uint32_t pixels = pixels_of(s);
  const std::uint32_t groups = pixels / group_pixels;  // groups in a row
  const std::uint32_t row = group / groups;
  const std::uint32_t first = (group - row * groups) * group_pixels;
  const bool mirrored = s.flip_flags != nullptr && s.flip_flags[row] != 0;
  std::uint32_t source = first;
  if (mirrored) {
    const std::uint32_t x = first % s.width;
    source = first - x + (s.width - group_pixels - x);
  }
  const std::size_t row_elements = std::size_t{pixels} * Channels;
  const std::uint8_t* from = s.from + row * row_elements + std::size_t{source} * Channels;
  word words[Channels];
  PENSTOCK_UNROLL
  for (unsigned i = 0; i < Channels; ++i) words[i] = load_word<word>(from + std::size_t{i} * sizeof(word));
  auto* to = static_cast<typename Rounding::element*>(s.to) + row * row_elements +
             std::size_t{first} * (Planar ? 1 : Channels);
  if (mirrored) {
    emit_group<Rounding, Channels, Planar, true>(s, words, to, pixels);
  } else {
    emit_group<Rounding, Channels, Planar, false>(s, words, to, pixels);
  }
}

/// Converts pixel number `index` of the batch, counted through all rows; works for any size. `Channels` 0: use the step's number.
template <class Rounding, unsigned Channels>
PENSTOCK_BOTH void convert_pixel(const kernel_step& s, std::uint32_t index) {
  const std::uint32_t channels = Channels != 0 ? Channels : s.channels;
  const std::uint32_t pixels = pixels_of(s);
  const std::uint32_t row = index / pixels;
  const std::uint32_t pixel = index - row * pixels;
  std::uint32_t source = pixel;
  if (s.flip_flags != nullptr && s.flip_flags[row] != 0) {
    const std::uint32_t x = pixel % s.width;
    source = pixel - x + (s.width - 1 - x);
  }
  const std::size_t row_elements = std::size_t{pixels} * channels;
  const std::uint8_t* from = s.from + row * row_elements + std::size_t{source} * channels;
  auto* to = static_cast<typename Rounding::element*>(s.to) + row * row_elements;
  PENSTOCK_UNROLL
  for (std::uint32_t c = 0; c < channels; ++c) {
    const std::size_t at = s.planar ? std::size_t{c} * pixels + pixel : std::size_t{pixel} * channels + c;
    Rounding::store1(to + at, Rounding::prepare(from[c], s.scale[c % 3], s.shift[c % 3]));
  }
}

/// The maximum number of rows per launch, because indices are 32 bits wide.
inline std::uint32_t rows_of_launch(const kernel_step& s) {
  constexpr std::uint32_t indices_max = 1U << 31U;
  const std::uint32_t most = indices_max / (pixels_of(s) > 0 ? pixels_of(s) : 1);
  const std::uint32_t rows = most > 0 ? most : 1;
  return rows < s.rows ? rows : s.rows;
}

/// The step without its first `rows` rows.
inline kernel_step after_rows(kernel_step s, std::uint32_t rows, std::size_t element_bytes) {
  const std::size_t elements = std::size_t{rows} * pixels_of(s) * s.channels;
  s.from += elements;
  s.to = static_cast<std::uint8_t*>(s.to) + elements * element_bytes;
  if (s.flip_flags != nullptr) s.flip_flags += rows;
  s.rows -= rows;
  return s;
}

}  // namespace penstock::device
