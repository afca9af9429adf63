// EXIF orientation: how the pixels in a file map to the picture as seen. Boxes are chosen in
// the picture as seen; decoding and resizing work on the pixels as stored. Pure. Used by the picture
// pipeline.
#pragma once

#include "runtime/dataset/picture/box.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// One of the eight values of EXIF tag 0x0112, decomposed. The seen pixel (x, y) is the stored pixel (x',
/// y') where (x', y') = transposed ? (y, x) : (x, y), then x' counted from the right if mirrored_x, y' from
/// the bottom if mirrored_y.
struct orientation {
  bool transposed = false;
  bool mirrored_x = false;
  bool mirrored_y = false;

  /// 1 .. 8; any other value counts as 1.
  static orientation from_exif(unsigned value) noexcept;

  /// Converts in both directions: stored to seen and seen to stored.
  [[nodiscard]] extent turned(extent size) const noexcept {
    return transposed ? extent{size.height, size.width} : size;
  }
  /// Converts a box of the picture as seen to pixels of a file of size `stored`.
  [[nodiscard]] pixel_box to_stored(const pixel_box& seen, extent stored) const noexcept;

  bool operator==(const orientation&) const = default;
};

/// Orientation in an EXIF block (a TIFF header and its first directory): 1 .. 8; 1 if it is missing or
/// invalid. Bounds-checked; reads both byte orders.
unsigned orientation_in_exif(std::span<const std::byte> tiff) noexcept;

}  // namespace penstock
