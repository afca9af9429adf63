// Draws the pictures of a batch side by side, with their names below. Pure except for write_png. Used by
// preview.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cli {

struct rgb_picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels;  ///< height x width x 3
};

struct sheet_tile {
  rgb_picture picture;
  std::vector<std::string> lines;  ///< text below the picture
};

/// Arranges tiles of one size in rows, pixel for pixel; enlarges small ones by a whole factor to make room
/// for their names. An empty sheet has only its title.
[[nodiscard]] rgb_picture contact_sheet(const std::string& title, const std::vector<sheet_tile>& tiles);

/// Refuses (errc::usage) a name with the extension of another picture format. `option`: "--out", for the message.
result<void> check_png_name(std::string_view option, const std::string& path);

/// 8-bit RGB. Fails with errc::io.
result<void> write_png(const std::string& path, const rgb_picture& picture);

inline constexpr unsigned glyph_width = 6;
inline constexpr unsigned glyph_height = 13;
[[nodiscard]] bool glyph_pixel(char letter, unsigned x, unsigned y) noexcept;

}  // namespace penstock::cli
