// Where the segments of a JPEG's header are, for what reads entropy-coded data by its restart markers. Pure. Used by
// restart_cut.cpp.
#pragma once

#include "runtime/dataset/picture/box.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock {

struct jpeg_segments {
  /// Positions in the file; a segment begins with its marker.
  struct range {
    std::size_t begin = 0, end = 0;
  };
  /// Tables, the frame and the segments that name the colours, in order. Metadata is left out.
  std::span<const range> decoding() const noexcept { return {ranges.data(), count}; }

  std::size_t frame_at = 0;
  range scan;                          ///< the header of the scan; entropy-coded data follows
  extent size;                         ///< as stored
  std::uint32_t across = 1, down = 1;  ///< blocks of luma in an MCU
  std::uint32_t restart_interval = 0;  ///< MCUs; 0: no markers

  static constexpr std::size_t ranges_max = 32;
  std::array<range, ranges_max> ranges{};
  std::size_t count = 0;

  /// Empty unless the file is baseline or extended sequential, 8 bits, coded by Huffman, and its first scan has all
  /// of its components.
  static std::optional<jpeg_segments> read(std::span<const std::uint8_t> file) noexcept;
};

}  // namespace penstock
