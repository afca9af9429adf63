// Reads format, size and orientation of a picture without decoding it. Decides by the first bytes, never by
// the file's name. Used by the picture pipeline.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/picture/box.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace penstock {

enum class picture_format : std::uint8_t { jpeg, png, webp };

/// "JPEG", "PNG", "WebP"
std::string_view name_of(picture_format format) noexcept;

struct picture_info {
  picture_format format = picture_format::jpeg;
  extent stored;                 ///< as stored in the file
  unsigned orientation = 1;      ///< EXIF tag 0x0112: JPEG's first Exif APP1 segment, PNG's eXIf and WebP's EXIF chunk
  bool interlaced = false;       ///< PNG: Adam7
  bool restart_markers = false;  ///< JPEG: its header declares restart markers
};

/// Reads the headers of a JPEG, a PNG or a WebP; allocates nothing. Refuses (errc::sample) an empty file, other
/// formats ("not a JPEG: starts with 68 65"; `expected` is the format according to the name, used only in
/// messages), truncated headers, pictures without pixels, and WebPs that are animated or shorter than their header says.
result<picture_info> probe(std::span<const std::byte> file, picture_format expected = picture_format::jpeg);

/// The format that a name or its extension implies: PNG for "png", WebP for "webp", else JPEG.
picture_format format_by_name(std::string_view name) noexcept;

}  // namespace penstock
