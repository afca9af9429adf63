// Receives decoded pixels row by row, top to bottom, so that the whole picture is never in memory. Implemented by the
// resampler; called by the decoders.
#pragma once

#include <cstdint>

namespace penstock {

/// A row is RGBX: four bytes per pixel, the fourth undefined. After the last pixel of each row, row_padding
/// bytes must be readable (vector loads read past the end); their values do not matter.
inline constexpr unsigned row_padding = 64;

class row_sink {
 public:
  row_sink() = default;
  row_sink(const row_sink&) = delete;
  row_sink& operator=(const row_sink&) = delete;
  virtual ~row_sink() = default;

  /// The next row of the window that the decoder was asked for.
  virtual void take_row(const std::uint8_t* rgbx) noexcept = 0;
};

}  // namespace penstock
