// Which part of a picture becomes the row of a batch: every augmentation is a box of whole source pixels and
// a flip. Pure. Used by the picture pipeline.
#pragma once

#include <penstock/config.hpp>
#include <penstock/random.hpp>

#include <array>
#include <cstdint>

namespace penstock {

/// Width and height in pixels, named so that they cannot be swapped.
struct extent {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool operator==(const extent&) const = default;
};

/// A rectangle of whole pixels; in coordinates of the displayed picture (after orientation), unless noted
/// otherwise.
struct pixel_box {
  std::uint32_t top = 0;
  std::uint32_t left = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  bool operator==(const pixel_box&) const = default;
};

/// The largest box with the proportions of `target`, its shorter dimension floored and at least 1, centred at
/// floor((full - box) / 2).
pixel_box largest_box(extent picture, extent target) noexcept;

/// Both sides of largest_box times `fraction`, rounded half up, at least 1, centred the same way.
pixel_box centre_crop_box(extent picture, extent target, double fraction) noexcept;

/// torchvision's RandomResizedCrop.get_params. Ten tries with area = scale * picture, a log-uniform ratio, sides
/// rounded half to even as in Python, and a uniform offset. After ten failures, the largest central box whose ratio is
/// within bounds. Draws per try: area, ratio, and if the box fits: top, left.
pixel_box random_resized_box(extent picture, range_2d scale, range_2d ratio, random_source& random) noexcept;

/// In the order of the record `crop`: top, left, height, width.
constexpr std::array<std::int32_t, 4> crop_record(const pixel_box& box) noexcept {
  return {static_cast<std::int32_t>(box.top), static_cast<std::int32_t>(box.left),
          static_cast<std::int32_t>(box.height), static_cast<std::int32_t>(box.width)};
}

struct augmentation {
  pixel_box box;
  bool flip = false;  ///< performed by the device; the worker does not flip pixels
};

/// Chooses flip and box as [image] says. The flip is drawn first (one uniform), then the box; only random-resized-crop
/// draws a box. Both sides of `picture` must be at least 1. The box lies inside it and is at least 1 x 1.
augmentation choose_augmentation(extent picture, const image_config& config, random_source& random) noexcept;

}  // namespace penstock
