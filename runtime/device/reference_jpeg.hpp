// A JPEG whose pixels show which decoder made them: every decoder accepts it, but decoders differ
// in rounding and in the upsampling of chroma. Used by the JPEG decoder of the CUDA device.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::device {

inline constexpr unsigned reference_side = 64;
/// Size of its pixels as interleaved RGB.
inline constexpr std::size_t reference_pixel_bytes = std::size_t{reference_side} * reference_side * 3;

/// Baseline, 4:2:0, reference_side x reference_side pixels with high contrast; always the same bytes, about 1 kB.
[[nodiscard]] std::vector<unsigned char> reference_jpeg();

}  // namespace penstock::device
