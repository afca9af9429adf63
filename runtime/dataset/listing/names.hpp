// Which file names are samples, and which skipped ones are worth a notice. Used by the listings and the
// probe.
#pragma once

#include <array>
#include <string_view>

namespace penstock {

/// `ending` is lower case ASCII; the name may be in any case. Independent of the locale.
constexpr bool ends_with_any_case(std::string_view name, std::string_view ending) noexcept {
  if (name.size() < ending.size()) return false;
  name.remove_prefix(name.size() - ending.size());
  for (std::size_t i = 0; i < ending.size(); ++i) {
    const char c = name[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != ending[i]) return false;
  }
  return true;
}

constexpr bool is_picture_name(std::string_view name) noexcept {
  return ends_with_any_case(name, ".jpg") || ends_with_any_case(name, ".jpeg") ||
         ends_with_any_case(name, ".png") || ends_with_any_case(name, ".webp");
}

/// The extension of an unsupported picture format, in lower case (".tiff"); empty for every other name.
constexpr std::string_view unread_picture_ending(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 19> endings{
      ".tif", ".tiff", ".bmp", ".gif", ".heic", ".heif", ".avif", ".jxl", ".jp2",
      ".j2k",  ".jpe", ".jfif", ".ppm", ".pgm", ".pnm",  ".tga",  ".svg",  ".dng", ".exr"};
  for (const std::string_view ending : endings) {
    if (ends_with_any_case(name, ending)) return ending;
  }
  return {};
}

}  // namespace penstock
