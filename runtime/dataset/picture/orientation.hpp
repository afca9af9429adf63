// EXIF orientation: how the stored pixels of a file map to the displayed picture. Boxes are chosen in
// the displayed picture; decoding and resizing work on the stored pixels. Pure. Used by the picture
// pipeline.
#pragma once

#include "runtime/dataset/picture/box.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// One of the eight values of EXIF tag 0x0112, decomposed. The displayed pixel (x, y) is the stored pixel (x',
/// y') where (x', y') = transposed ? (y, x) : (x, y), then x' counted from the right if mirrored_x, y' from
/// the bottom if mirrored_y.
struct orientation {
  bool transposed = false;
  bool mirrored_x = false;
  bool mirrored_y = false;

  /// 1 .. 8; any other value counts as 1.
  static orientation from_exif(unsigned value) noexcept;

  /// Converts a stored size to the displayed one, or back.
  [[nodiscard]] extent turned(extent size) const noexcept {
    return transposed ? extent{size.height, size.width} : size;
  }
  /// Converts a box of the displayed picture to stored pixels. `stored`: the size of the stored picture.
  [[nodiscard]] pixel_box to_stored(const pixel_box& seen, extent stored) const noexcept;

  bool operator==(const orientation&) const = default;
};

/// Orientation in an EXIF block (a TIFF header and its first directory): 1 .. 8; 1 if it is missing or
/// invalid. Bounds-checked. Reads both byte orders.
unsigned orientation_in_exif(std::span<const std::byte> tiff) noexcept;

}  // namespace penstock
