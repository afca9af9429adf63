// Decodes WebP files to rows of pixels with libwebp, opened at run time. Used by the picture pipeline.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/dataset/picture/row_sink.hpp"
#include "runtime/dataset/recycled_buffer.hpp"

#include <cstddef>
#include <span>

namespace penstock {

/// Refuses (errc::config) if libwebp cannot be loaded, and names the package that provides it.
result<void> check_webp();

/// Gives the sink the rows of `window` of a still picture. Drops alpha like decode_png(). Decodes the whole file into `rows`,
/// regardless of the window. Refuses (errc::sample) what libwebp refuses, and every file if libwebp is missing. The
/// format has no checksums: damage that libwebp does not notice changes pixels.
result<void> decode_webp(std::span<const std::byte> file, const picture_info& info, const pixel_box& window,
                         recycled_buffer& rows, row_sink& sink);

}  // namespace penstock
