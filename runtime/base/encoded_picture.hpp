// The header of a JPEG that the device decodes: it begins each row of a tensor with role `encoded`. Written by the
// picture pipeline in a worker, read by the device.
#pragma once

#include <cstdint>

namespace penstock {

/// Lengths are in pixels as stored in the file. Workers decode pictures that have to be rotated.
struct encoded_picture {
  std::uint32_t bytes = 0;  ///< size of the file, which follows; 0: the worker has decoded the picture
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t box_top = 0;  ///< the part that becomes the row of the image tensor
  std::uint32_t box_left = 0;
  std::uint32_t box_height = 0;
  std::uint32_t box_width = 0;
  std::uint32_t reserved = 0;
};

/// The size of a row: the header, then the file. Workers decode files that do not fit.
inline constexpr std::uint32_t encoded_row_bytes = 192U << 10U;
inline constexpr std::uint32_t encoded_file_bytes_max = encoded_row_bytes - sizeof(encoded_picture);
/// Workers also decode pictures beyond these limits: device memory is allocated once, for the largest picture allowed,
/// and the device's decoders are tested only with pictures of at least one MCU of 4:2:0.
inline constexpr std::uint32_t encoded_side_min = 16;
inline constexpr std::uint32_t encoded_side_max = 8192;
inline constexpr std::uint32_t encoded_pixels_max = 8U << 20U;

}  // namespace penstock
