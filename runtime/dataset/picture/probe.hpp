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

enum class picture_format : std::uint8_t { jpeg, png };

struct picture_info {
  picture_format format = picture_format::jpeg;
  extent stored;                 ///< as stored in the file
  unsigned orientation = 1;      ///< EXIF tag 0x0112: JPEG's first Exif APP1 segment, PNG's eXIf chunk
  bool interlaced = false;       ///< PNG: Adam7
  bool restart_markers = false;  ///< JPEG: its header declares restart markers
};

/// Reads the headers of a JPEG or a PNG; allocates nothing. Refuses (errc::sample) an empty file, other
/// formats ("not a JPEG: starts with 68 65"; `expected` is the format according to the name, used only in
/// messages), truncated headers and pictures without pixels.
result<picture_info> probe(std::span<const std::byte> file, picture_format expected = picture_format::jpeg);

/// The format that the extension implies: PNG for .png, else JPEG.
picture_format format_by_name(std::string_view name) noexcept;

}  // namespace penstock
