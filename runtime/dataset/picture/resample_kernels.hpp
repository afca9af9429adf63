// The two inner loops of the resize, in plain C++ and for AVX2. Both give the same bits. Used by the resampler; the test compares them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

/// Bytes that a kernel may write past the end of a horizontally resized row, or read past a source row (see
/// row_padding).
inline constexpr std::size_t resampled_padding = 32;

struct resample_kernels {
  /// One row, RGBX to RGB: out[i] = sum over k < taps of in[first[i] + k] * weights[i * taps + k], rounded,
  /// >> shift.
  void (*horizontal)(const std::uint8_t* rgbx, const std::uint32_t* first, const std::int16_t* weights,
                     std::uint32_t taps, unsigned shift, std::uint32_t pixels, std::uint8_t* rgb);
  /// out[i] = sum over k < taps of rows[k][i] * weights[k], rounded, >> shift. The rows (not the output) must
  /// be readable up to the next multiple of 32 bytes. taps is even.
  void (*vertical)(const std::uint8_t* const* rows, const std::int16_t* weights, std::uint32_t taps,
                   unsigned shift, std::size_t bytes, std::uint8_t* out);
};

extern const resample_kernels portable_kernels;
/// The fastest kernels that this processor supports.
const resample_kernels& best_kernels() noexcept;

}  // namespace penstock
