// Decodes PNG files to rows of pixels with libspng. Used by the picture pipeline.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/row_sink.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <cstddef>
#include <span>

namespace penstock {

/// Gives the sink the rows of `window`. Any colour type and depth: 16 bits keep their upper 8, alpha is
/// dropped (as Pillow's convert("RGB") drops it), no gamma. The whole file is decoded and every checksum
/// verified, regardless of the window. Refuses (errc::sample) what libspng refuses, files that end before
/// their IEND, and chunks that would unpack to more than 64 MiB. `rows` holds an interlaced picture as a
/// whole, others row by row. Throws std::bad_alloc only.
result<void> decode_png(std::span<const std::byte> file, const picture_info& info, const pixel_box& window,
                        recycled_buffer& rows, row_sink& sink);

}  // namespace penstock
