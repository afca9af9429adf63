// Finds the segments of a JPEG's header, for code that reads entropy-coded data by its restart markers. Pure. Used by
// restart_cut.cpp; jpeg_check.cpp uses it to walk through the segments.
#pragma once

#include "runtime/dataset/picture/box.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock {

/// One segment of a JPEG's header.
struct jpeg_segment {
  unsigned marker = 0;                    ///< its second byte
  std::span<const std::uint8_t> payload;  ///< the bytes after its length field
  std::size_t begin = 0, end = 0;         ///< positions in the file; the marker is at `begin`
};
/// The segment at `at`, after any fill bytes. Empty if there is none or it is cut short.
std::optional<jpeg_segment> jpeg_segment_at(std::span<const std::uint8_t> file, std::size_t at) noexcept;
/// The segment after the start-of-image marker. Also empty if the file does not begin with that marker.
std::optional<jpeg_segment> first_jpeg_segment(std::span<const std::uint8_t> file) noexcept;

/// Big-endian, like all numbers in a header.
[[nodiscard]] inline unsigned two_bytes(std::span<const std::uint8_t> from, std::size_t at) noexcept {
  return static_cast<unsigned>(from[at]) << 8U | from[at + 1];
}

struct jpeg_segments {
  /// Positions in the file; a segment begins with its marker.
  struct range {
    std::size_t begin = 0, end = 0;
  };
  /// Tables, the frame and the segments that name the colours, in order. Metadata is left out.
  std::span<const range> decoding() const noexcept { return {ranges.data(), count}; }

  std::size_t frame_at = 0;
  range scan;                          ///< the header of the scan; entropy-coded data follows
  extent size;                         ///< size of the picture as stored
  std::uint32_t across = 1, down = 1;  ///< blocks of luma in an MCU
  std::uint32_t restart_interval = 0;  ///< MCUs; 0: no markers

  static constexpr std::size_t ranges_max = 32;
  std::array<range, ranges_max> ranges{};
  std::size_t count = 0;

  /// Empty unless the file is baseline or extended sequential with 8 bits and Huffman codes, and its first scan has all components.
  static std::optional<jpeg_segments> read(std::span<const std::uint8_t> file) noexcept;
};

}  // namespace penstock
