// A JPEG that every decoder decodes, each to pixels of its own: rounding and the enlargement of chroma differ. Shows which
// decoder is at work. Used by the JPEG decoder of the CUDA device.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::device {

inline constexpr unsigned reference_side = 64;
/// As interleaved RGB.
inline constexpr std::size_t reference_pixel_bytes = std::size_t{reference_side} * reference_side * 3;

/// Baseline, 4:2:0, reference_side x reference_side pixels of much contrast; always the same bytes, about 1 kB.
[[nodiscard]] std::vector<unsigned char> reference_jpeg();

}  // namespace penstock::device
