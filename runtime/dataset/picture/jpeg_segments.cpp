#include "runtime/dataset/picture/jpeg_segments.hpp"

#include <algorithm>

namespace penstock {

std::optional<jpeg_segment> jpeg_segment_at(std::span<const std::uint8_t> file, std::size_t at) noexcept {
  while (at <= file.size() && file.size() - at >= 4) {
    if (file[at] != 0xff) return std::nullopt;
    const unsigned marker = file[at + 1];
    if (marker == 0xff) {
      ++at;
      continue;
    }
    const std::size_t length = two_bytes(file, at + 2);
    if (length < 2 || file.size() - at - 2 < length) return std::nullopt;
    return jpeg_segment{marker, file.subspan(at + 4, length - 2), at, at + 2 + length};
  }
  return std::nullopt;
}

std::optional<jpeg_segment> first_jpeg_segment(std::span<const std::uint8_t> file) noexcept {
  if (file.size() < 4 || file[0] != 0xff || file[1] != 0xd8) return std::nullopt;
  return jpeg_segment_at(file, 2);
}

std::optional<jpeg_segments> jpeg_segments::read(std::span<const std::uint8_t> file) noexcept {
  jpeg_segments found;
  unsigned components = 0;
  for (auto next = first_jpeg_segment(file); next; next = jpeg_segment_at(file, next->end)) {
    const auto [marker, segment, begin, end] = *next;
    const range here{begin, end};
    switch (marker) {
      case 0xc0:
      case 0xc1: {
        if (components != 0 || segment.size() < 6 || segment[0] != 8) return std::nullopt;
        components = segment[5];
        if (components == 0 || components > 4 || segment.size() != 6 + 3 * std::size_t{components})
          return std::nullopt;
        found.size = {two_bytes(segment, 3), two_bytes(segment, 1)};
        found.frame_at = here.begin;
        // In a scan of a single component, the MCU is one block, regardless of its sampling factors.
        for (unsigned c = 0; c < components && components > 1; ++c) {
          const unsigned factors = segment[7 + 3 * std::size_t{c}];
          if (factors >> 4U == 0 || factors >> 4U > 4 || factors % 16 == 0 || factors % 16 > 4)
            return std::nullopt;
          found.across = std::max(found.across, factors >> 4U);
          found.down = std::max(found.down, factors % 16);
        }
        break;
      }
      case 0xdd:
        if (segment.size() != 2) return std::nullopt;
        found.restart_interval = two_bytes(segment, 0);
        continue;
      case 0xda:
        if (components == 0 || segment.empty() || segment[0] != components) return std::nullopt;
        found.scan = here;
        return found;
      case 0xc4:
      case 0xdb:
      case 0xe0:
      case 0xee: break;
      default:
        if ((marker < 0xe1 || marker > 0xef) && marker != 0xfe) return std::nullopt;
        continue;
    }
    if (found.count == ranges_max) return std::nullopt;
    found.ranges[found.count++] = here;
  }
  return std::nullopt;
}

}  // namespace penstock
