// Draws a folder of JPEGs to try penstock with, without photographs: smooth fields of colour with shapes and grain, 500 x 375 at
// quality 90, about as large and as hard to decode as the photographs of an image collection. Used by `penstock sample-photos`, and by
// penstock-sample-photos, which needs no other part of penstock.
#pragma once

#include <filesystem>
#include <optional>

namespace penstock {

inline constexpr int sample_photos_max = 1'000'000;  // 40 GB of files

struct unwritten_photo {
  std::filesystem::path file;
  int os_code = 0;  ///< errno
};

/// Into FOLDER/class-0 to class-3, with a thread for each core. Returns the first file that could not be written (it is removed); empty if
/// all were written.
[[nodiscard]] std::optional<unwritten_photo> draw_sample_photos(const std::filesystem::path& folder, int count);

}  // namespace penstock
