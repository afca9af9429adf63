// Decodes JPEG files to rows of pixels with libjpeg-turbo: the whole picture or a window of it, at full,
// half, quarter or eighth size. Used by the picture pipeline.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/row_sink.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <cstddef>
#include <span>

namespace penstock {

enum class decode_rule : std::uint8_t {
  whole_file,   ///< every byte is decoded and checked
  window_only,  ///< rows below the window are not decoded, and columns beside it are not transformed
};

struct jpeg_request {
  extent stored;             ///< from probe()
  unsigned denominator = 1;  ///< 1, 2, 4 or 8: DCT scaling
  pixel_box window;          ///< the part passed to the sink, in pixels after scaling
  decode_rule rule = decode_rule::whole_file;
};

/// The length of a side after DCT scaling.
constexpr std::uint32_t scaled_side(std::uint32_t side, unsigned denominator) noexcept {
  return (side + denominator - 1) / denominator;
}

/// Uses the slow, exact DCT and fancy upsampling, like Pillow; CMYK and YCCK become RGB as in Pillow's convert("RGB").
/// whole_file and window_only give the same pixels. Refuses (errc::sample) what libjpeg refuses, warnings that affect
/// pixels (early end, bad codes, lost synchronisation), more than 500 scans, and, under window_only, a file without an
/// end-of-image marker after the decoded part. `rows` is scratch memory. Throws only std::bad_alloc.
result<void> decode_jpeg(std::span<const std::byte> file, const jpeg_request& request, recycled_buffer& rows,
                         row_sink& sink);

}  // namespace penstock
