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

/// Gives the sink the rows of `window`. Accepts any colour type and depth. Keeps the upper 8 of 16 bits, drops alpha (like
/// Pillow's convert("RGB")), ignores gamma. Decodes the whole file and verifies every checksum, regardless of the window.
/// Refuses (errc::sample) what libspng refuses, files that end before their IEND, and chunks that would unpack to more than
/// 64 MiB. `rows` holds the whole picture if it is interlaced, otherwise one row. Throws only std::bad_alloc.
result<void> decode_png(std::span<const std::byte> file, const picture_info& info, const pixel_box& window,
                        recycled_buffer& rows, row_sink& sink);

}  // namespace penstock
