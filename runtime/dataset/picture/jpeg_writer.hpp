// Encodes pixels as a JPEG file with libjpeg-turbo. Used by `penstock pack`.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace penstock {

/// Encodes RGB pixels without gaps as a baseline JPEG with halved chroma and optimised tables. The same pixels and
/// library give the same bytes. `quality` is libjpeg's, 1 .. 100. Refuses (errc::sample) sides above 65500 pixels,
/// libjpeg's limit, and a lack of memory.
result<std::string> write_jpeg(extent size, std::span<const std::uint8_t> rgb, int quality);

}  // namespace penstock
