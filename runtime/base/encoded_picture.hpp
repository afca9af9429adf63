// A JPEG in a slot, for the device to decode: what a row of a tensor of role `encoded` begins with. Written by the
// picture pipeline in a worker, read by the device.
#pragma once

#include <cstdint>

namespace penstock {

/// Lengths in pixels as stored in the file, which is not to be turned.
struct encoded_picture {
  std::uint32_t bytes = 0;  ///< of the file, which follows; 0: the worker has decoded the picture
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t box_top = 0;  ///< the part that becomes the row of the image tensor
  std::uint32_t box_left = 0;
  std::uint32_t box_height = 0;
  std::uint32_t box_width = 0;
  std::uint32_t reserved = 0;
};

/// A row: the header, then the file. Larger files are left to the workers.
inline constexpr std::uint32_t encoded_row_bytes = 192U << 10U;
inline constexpr std::uint32_t encoded_file_bytes_max = encoded_row_bytes - sizeof(encoded_picture);
/// Larger pictures, too; device memory is allocated once, for pictures of this many pixels at most.
inline constexpr std::uint32_t encoded_side_max = 8192;
inline constexpr std::uint32_t encoded_pixels_max = 8U << 20U;

}  // namespace penstock
