// Converts one picture from the bytes of its file to the row of a batch: probes it, chooses the box, decodes what the box
// needs, and resizes that into the slot. Used by the image-folder dataset; tests and benchmarks use it without files.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/checked_files.hpp"
#include "runtime/dataset/picture/jpeg.hpp"
#include "runtime/dataset/picture/jpeg_check.hpp"
#include "runtime/dataset/picture/orientation.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/resample.hpp"
#include "runtime/dataset/picture/restart_cut.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <penstock/config.hpp>
#include <penstock/random.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace penstock {

/// The largest file that is read as a picture. A picture of [image] max_pixels never needs more.
std::uint64_t picture_bytes_max(const image_config& config) noexcept;

class picture_loader {
 public:
  explicit picture_loader(const image_config& config, checked_files checked = {})
      : config_(config), checked_(std::move(checked)) {}

  /// Writes size[0] x size[1] RGB pixels to `out` and returns the box that they came from. Refuses with errc::sample;
  /// the message does not name the file, so the caller adds the name. Checks the number of pixels against [image]
  /// max_pixels before allocating memory for them.
  result<augmentation> load(std::span<const std::byte> file, picture_format expected, random_source& random,
                            std::span<std::uint8_t> out);

  /// Like load(), but if the picture suits the device's decoder, copies the file unchanged to `encoded` (a row of
  /// encoded_row_bytes) and does not touch `out`. Otherwise marks `encoded` as empty.
  struct device_rule {
    bool may_decode = false;
    std::uint64_t index = 0;  ///< the sample's index; a file that passes the check is recorded under it
  };
  result<augmentation> load_or_pass_on(std::span<const std::byte> file, picture_format expected,
                                       random_source& random, std::span<std::uint8_t> out,
                                       std::span<std::byte> encoded, device_rule rule);

  /// The whole picture, oriented, and reduced until its shorter side has `shorter` pixels. Not reduced if `shorter` is
  /// 0 or the side is shorter already. Pixels are RGB, valid until the next call. Refuses what load() refuses.
  struct whole {
    extent size;
    std::span<const std::uint8_t> pixels;
  };
  result<whole> load_whole(std::span<const std::byte> file, picture_format expected, std::uint32_t shorter);

  [[nodiscard]] const image_config& config() const noexcept { return config_; }

 private:
  struct oriented_picture {
    picture_info info;
    orientation turn;
    extent seen;
  };
  [[nodiscard]] result<oriented_picture> examine(std::span<const std::byte> file,
                                                 picture_format expected) const;
  bool pass_on(std::span<const std::byte> file, const oriented_picture& picture, const pixel_box& box,
               std::span<std::byte> encoded, std::uint64_t index);
  std::optional<std::size_t> plain_bytes(std::span<const std::byte> file, std::uint64_t index);
  result<void> decode(std::span<const std::byte> file, const picture_info& info, const jpeg_request& request);
  result<void> render(std::span<const std::byte> file, const oriented_picture& picture, const pixel_box& seen,
                      extent size, std::span<std::uint8_t> out);

  image_config config_;
  jpeg_checker checker_;
  restart_cutter cutter_;
  checked_files checked_;
  resampler resampler_;
  recycled_buffer rows_;
  recycled_buffer pixels_;  // for load_whole
};

/// DCT scaling for a random crop: 2, 4 or 8 when the box is at least that many times as large as the result
/// in both directions, else 1. The resampler does the rest of the reduction.
unsigned dct_denominator(extent box, extent result) noexcept;

}  // namespace penstock
