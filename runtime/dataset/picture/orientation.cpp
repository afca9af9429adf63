#include "runtime/dataset/picture/orientation.hpp"

namespace penstock {

orientation orientation::from_exif(unsigned value) noexcept {
  switch (value) {
    case 2: return {false, true, false};
    case 3: return {false, true, true};
    case 4: return {false, false, true};
    case 5: return {true, false, false};
    case 6: return {true, false, true};
    case 7: return {true, true, true};
    case 8: return {true, true, false};
    default: return {};
  }
}

pixel_box orientation::to_stored(const pixel_box& seen, extent stored) const noexcept {
  pixel_box box = seen;
  if (transposed) box = {seen.left, seen.top, seen.width, seen.height};
  if (mirrored_x) box.left = stored.width - box.left - box.width;
  if (mirrored_y) box.top = stored.height - box.top - box.height;
  return box;
}

namespace {

/// Reads numbers in either byte order. Everything outside the block reads as 0.
struct tiff_reader {
  std::span<const std::byte> bytes;
  bool big_endian = false;

  [[nodiscard]] std::uint32_t number(std::uint64_t at, unsigned size) const noexcept {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    std::uint32_t value = 0;
    for (unsigned i = 0; i < size; ++i) {
      const unsigned shift = 8 * (big_endian ? size - 1 - i : i);
      value |= std::to_integer<std::uint32_t>(bytes[at + i]) << shift;
    }
    return value;
  }
};

}  // namespace

unsigned orientation_in_exif(std::span<const std::byte> tiff) noexcept {
  constexpr std::uint32_t orientation_tag = 0x0112;
  constexpr std::uint32_t type_short = 3;
  constexpr std::uint32_t type_long = 4;
  tiff_reader reader{tiff};
  const std::uint32_t order = reader.number(0, 2);
  if (order != 0x4949 && order != 0x4d4d) return 1;  // "II", "MM"
  reader.big_endian = order == 0x4d4d;
  if (reader.number(2, 2) != 42) return 1;
  const std::uint64_t directory = reader.number(4, 4);
  const std::uint32_t entries = reader.number(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + std::uint64_t{12} * i;
    if (entry + 12 > tiff.size()) return 1;
    if (reader.number(entry, 2) != orientation_tag) continue;
    const std::uint32_t type = reader.number(entry + 2, 2);
    if ((type != type_short && type != type_long) || reader.number(entry + 4, 4) != 1) return 1;
    const std::uint32_t value = reader.number(entry + 8, type == type_short ? 2 : 4);
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

}  // namespace penstock
