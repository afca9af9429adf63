// Where the segments of a JPEG's header are, for what reads entropy-coded data by its restart markers. Pure. Used by
// restart_cut.cpp, and for their sequence by jpeg_check.cpp.
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
  std::span<const std::uint8_t> payload;  ///< after its length
  std::size_t begin = 0, end = 0;         ///< in the file; it begins with its marker
};
/// The segment at `at`, after fill bytes. Empty: there is none, or it is cut short.
std::optional<jpeg_segment> jpeg_segment_at(std::span<const std::uint8_t> file, std::size_t at) noexcept;
/// The one after the start of the image. Empty also if the file does not begin with that.
std::optional<jpeg_segment> first_jpeg_segment(std::span<const std::uint8_t> file) noexcept;

/// Big-endian, as all numbers of a header.
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
