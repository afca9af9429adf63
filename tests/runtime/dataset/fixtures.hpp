// Shared by the tests of this folder: temporary folders, pictures in memory, encoders.
#pragma once

#include "runtime/dataset/picture/box.hpp"
#include "runtime/dataset/picture/row_sink.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::testing {

using bytes = std::vector<std::byte>;

/// A temporary folder, removed by the destructor.
class temporary_folder {
 public:
  temporary_folder();
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder();

  [[nodiscard]] std::string path(std::string_view below = {}) const;
  /// Writes a file and the folders above it.
  void write(std::string_view name, std::string_view content) const;
  void write(std::string_view name, const bytes& content) const;
  void make_folder(std::string_view name) const;
  void link(std::string_view name, std::string_view target) const;

 private:
  std::filesystem::path path_;
};

/// Pixels of 1, 3 or 4 channels without padding.
struct raster {
  extent size;
  unsigned channels = 3;
  std::vector<std::uint8_t> pixels;
};

/// Gradients, edges and grain, which depend only on the arguments.
raster make_raster(extent size, unsigned channels = 3, std::uint64_t seed = 1);

struct jpeg_options {
  int quality = 90;
  unsigned horizontal = 2;  ///< sampling factors of luma; chroma has 1 x 1
  unsigned vertical = 2;
  bool progressive = false;
  bool grey_with_factors = false;  ///< grey: declares sampling factors, as some files do; they have no effect
  bool interleaved = true;         ///< false: a scan for each component
  unsigned restart_rows = 0;       ///< rows of MCUs between restart markers, or
  unsigned restart_mcus = 0;       ///< MCUs
  unsigned orientation = 0;        ///< an Exif segment with this value, if not 0
};

/// 1 channel: grey; 3: YCbCr; 4: Adobe's YCCK.
bytes encode_jpeg(const raster& picture, const jpeg_options& options = {});

struct png_options {
  unsigned bits = 8;
  bool interlaced = false;
};

/// 1 channel: grey; 3: RGB; 4: RGBA. 16 bits: each byte twice.
bytes encode_png(const raster& picture, const png_options& options = {});

/// Lossy with this quality, or lossless if it is 0; 3 channels: RGB, 4: RGBA. Needs libwebp.
bytes encode_webp(const raster& picture, float quality = 0);

/// A WebP file of these chunks.
struct webp_chunk {
  std::string_view name;  ///< four characters
  bytes content;
};
bytes webp_of(const std::vector<webp_chunk>& chunks);

/// The chunks of a WebP file.
std::vector<webp_chunk> chunks_of_webp(const bytes& file);

/// The content of a VP8X chunk: the header of the extended format.
bytes webp_header(extent canvas, unsigned flags = 0);

/// An Exif block as in an APP1 segment after "Exif\0\0".
bytes exif_block(unsigned orientation, bool big_endian = false);

/// Collects the rows of a window as RGB.
class collecting_sink final : public row_sink {
 public:
  explicit collecting_sink(std::uint32_t width) : width_(width) {}
  void take_row(const std::uint8_t* rgbx) noexcept override {
    for (std::uint32_t i = 0; i < width_; ++i) pixels.insert(pixels.end(), rgbx + 4 * i, rgbx + 4 * i + 3);
    ++rows;
  }
  std::vector<std::uint8_t> pixels;
  std::uint32_t rows = 0;

 private:
  std::uint32_t width_;
};

inline bytes as_bytes(std::string_view text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace penstock::testing
