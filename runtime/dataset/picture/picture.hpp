// Converts one picture from the bytes of its file to the row of a batch: probe, choose the box, decode what
// it needs, resize into the slot. Used by the image-folder dataset; tests and benches use it without files.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/resample.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <penstock/config.hpp>
#include <penstock/random.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

class picture_loader {
 public:
  explicit picture_loader(const image_config& config) : config_(config) {}

  /// Writes size[0] x size[1] RGB pixels to `out` and returns the box that they came from. Refuses
  /// (errc::sample) with a message that does not name the file; the caller adds it. Pixels are checked
  /// against [image] max_pixels before anything is allocated for them.
  result<augmentation> load(std::span<const std::byte> file, picture_format expected, random_source& random,
                            std::span<std::uint8_t> out);

  [[nodiscard]] const image_config& config() const noexcept { return config_; }

 private:
  result<void> render(std::span<const std::byte> file, const picture_info& info, const pixel_box& seen,
                      std::span<std::uint8_t> out);

  image_config config_;
  resampler resampler_;
  recycled_buffer rows_;
};

/// DCT scaling for a random crop: 2, 4 or 8 when the box is at least that many times as large as the result
/// in both directions, else 1. The resampler does the rest of the reduction.
unsigned dct_denominator(extent box, extent result) noexcept;

}  // namespace penstock
