#include "tests/runtime/dataset/fixtures.hpp"

#include "runtime/base/shared_library.hpp"

#include <penstock/random.hpp>

#include <jpeglib.h>
#include <spng.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace penstock::testing {

namespace fs = std::filesystem;

temporary_folder::temporary_folder() {
  std::string pattern = (fs::temp_directory_path() / "penstock-dataset-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string temporary_folder::path(std::string_view below) const {
  return below.empty() ? path_.string() : path_.string() + "/" + std::string(below);
}

void temporary_folder::write(std::string_view name, std::string_view content) const {
  const fs::path file = path(name);
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out.flush()) throw std::runtime_error("writing " + file.string());
}

void temporary_folder::write(std::string_view name, const bytes& content) const {
  write(name, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
}

void temporary_folder::make_folder(std::string_view name) const {
  fs::create_directories(path(name));
}

void temporary_folder::link(std::string_view name, std::string_view target) const {
  fs::create_symlink(target, path(name));
}

raster make_raster(extent size, unsigned channels, std::uint64_t seed) {
  raster picture{size, channels, {}};
  picture.pixels.reserve(std::size_t{size.width} * size.height * channels);
  random_source random(seed, 0, 0);
  const unsigned period = 20 + random.below(60);
  for (std::uint32_t y = 0; y < size.height; ++y) {
    for (std::uint32_t x = 0; x < size.width; ++x) {
      const bool edge = (x / period + y / (period + 7)) % 2 == 0;
      for (unsigned c = 0; c < channels; ++c) {
        const unsigned slope = (x * (c + 1) + y * (3 - c % 3)) * 120 / (size.width + size.height);
        picture.pixels.push_back(
            static_cast<std::uint8_t>((slope + (edge ? 90 : 20 * c) + random.below(12)) & 0xffU));
      }
    }
  }
  return picture;
}

bytes exif_block(unsigned orientation, bool big_endian) {
  bytes block;
  const auto number = [&](unsigned value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) {
      const unsigned shift = 8 * (big_endian ? size - 1 - i : i);
      block.push_back(static_cast<std::byte>(value >> shift & 0xffU));
    }
  };
  block = as_bytes(big_endian ? "MM" : "II");
  number(42, 2);
  number(8, 4);
  number(2, 2);  // entries: ImageWidth (unrelated), Orientation
  number(0x0100, 2);
  number(3, 2);
  number(1, 4);
  number(640, 2);
  number(0, 2);
  number(0x0112, 2);
  number(3, 2);
  number(1, 4);
  number(orientation, 2);
  number(0, 2);
  number(0, 4);
  return block;
}

bytes encode_jpeg(const raster& picture, const jpeg_options& options) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  codec.image_width = picture.size.width;
  codec.image_height = picture.size.height;
  codec.input_components = static_cast<int>(picture.channels);
  codec.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : picture.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&codec);
  if (picture.channels == 4) jpeg_set_colorspace(&codec, JCS_YCCK);
  jpeg_set_quality(&codec, options.quality, TRUE);
  if (picture.channels != 1 || options.grey_with_factors) {
    codec.comp_info[0].h_samp_factor = static_cast<int>(options.horizontal);
    codec.comp_info[0].v_samp_factor = static_cast<int>(options.vertical);
    for (int c = 1; c < codec.num_components; ++c) {
      const bool full = c == 3;  // YCCK: K is coded like Y
      codec.comp_info[c].h_samp_factor = full ? static_cast<int>(options.horizontal) : 1;
      codec.comp_info[c].v_samp_factor = full ? static_cast<int>(options.vertical) : 1;
    }
  }
  codec.restart_interval = options.restart_mcus;
  codec.restart_in_rows = static_cast<int>(options.restart_rows);
  if (options.progressive) jpeg_simple_progression(&codec);
  std::array<jpeg_scan_info, 4> scans{};
  if (!options.interleaved) {
    for (std::size_t i = 0; i < scans.size(); ++i)
      scans[i] = {1, {static_cast<int>(i), 0, 0, 0}, 0, 63, 0, 0};
    codec.scan_info = scans.data();
    codec.num_scans = codec.num_components;
  }
  jpeg_start_compress(&codec, TRUE);
  if (options.orientation != 0) {
    bytes segment = as_bytes(std::string_view("Exif\0\0", 6));
    const bytes block = exif_block(options.orientation);
    segment.insert(segment.end(), block.begin(), block.end());
    jpeg_write_marker(&codec, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(segment.data()),
                      static_cast<unsigned>(segment.size()));
  }
  while (codec.next_scanline < codec.image_height) {
    auto* row = const_cast<JSAMPLE*>(picture.pixels.data()) +
                std::size_t{codec.next_scanline} * picture.size.width * picture.channels;
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  const auto* const begin = reinterpret_cast<const std::byte*>(memory);
  bytes file(begin, begin + size);
  std::free(memory);
  return file;
}

bytes encode_png(const raster& picture, const png_options& options) {
  spng_ctx* const png = spng_ctx_new(SPNG_CTX_ENCODER);
  const auto demand = [](int status) {
    if (status != 0) throw std::runtime_error(spng_strerror(status));
  };
  spng_ihdr header{};
  header.width = picture.size.width;
  header.height = picture.size.height;
  header.bit_depth = static_cast<std::uint8_t>(options.bits);
  header.color_type = picture.channels == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
                      : picture.channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
                                              : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  header.interlace_method = options.interlaced ? SPNG_INTERLACE_ADAM7 : SPNG_INTERLACE_NONE;
  demand(spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1));
  demand(spng_set_ihdr(png, &header));
  std::vector<std::uint8_t> samples = picture.pixels;
  if (options.bits == 16) {
    samples.clear();
    for (const std::uint8_t sample : picture.pixels) samples.insert(samples.end(), {sample, sample});
  }
  demand(spng_encode_image(png, samples.data(), samples.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  std::size_t size = 0;
  int status = 0;
  void* const memory = spng_get_png_buffer(png, &size, &status);
  demand(status);
  const auto* const begin = static_cast<const std::byte*>(memory);
  bytes file(begin, begin + size);
  std::free(memory);
  spng_ctx_free(png);
  return file;
}

bytes encode_webp(const raster& picture, float quality) {
  const shared_library library("libwebp.so.7");
  std::size_t (*lossless)(const std::uint8_t*, int, int, int, std::uint8_t**) = nullptr;
  std::size_t (*lossy)(const std::uint8_t*, int, int, int, float, std::uint8_t**) = nullptr;
  void (*release)(void*) = nullptr;
  const bool alpha = picture.channels == 4;
  if (!library.find(alpha ? "WebPEncodeLosslessRGBA" : "WebPEncodeLosslessRGB", lossless) ||
      !library.find(alpha ? "WebPEncodeRGBA" : "WebPEncodeRGB", lossy) || !library.find("WebPFree", release))
    throw std::runtime_error("libwebp: " + library.trouble());
  const int width = static_cast<int>(picture.size.width);
  const int height = static_cast<int>(picture.size.height);
  const int stride = width * static_cast<int>(picture.channels);
  std::uint8_t* made = nullptr;
  const std::size_t size = quality == 0 ? lossless(picture.pixels.data(), width, height, stride, &made)
                                        : lossy(picture.pixels.data(), width, height, stride, quality, &made);
  if (size == 0) throw std::runtime_error("libwebp cannot encode a picture");
  const auto* const begin = reinterpret_cast<const std::byte*>(made);
  bytes file(begin, begin + size);
  release(made);
  return file;
}

namespace {

void append_number(bytes& to, std::size_t value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i) & 0xffU));
}

}  // namespace

bytes webp_of(const std::vector<webp_chunk>& chunks) {
  bytes body = as_bytes("WEBP");
  for (const webp_chunk& chunk : chunks) {
    const bytes name = as_bytes(chunk.name);
    body.insert(body.end(), name.begin(), name.end());
    append_number(body, chunk.content.size(), 4);
    body.insert(body.end(), chunk.content.begin(), chunk.content.end());
    if (chunk.content.size() % 2 != 0) body.push_back(std::byte{0});
  }
  bytes file = as_bytes("RIFF");
  append_number(file, body.size(), 4);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

std::vector<webp_chunk> chunks_of_webp(const bytes& file) {
  std::vector<webp_chunk> chunks;
  for (std::size_t at = 12; at + 8 <= file.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, file.data() + at + 4, sizeof size);
    const auto* const name = reinterpret_cast<const char*>(file.data() + at);
    constexpr std::array<std::string_view, 4> names{"VP8 ", "VP8L", "VP8X", "ALPH"};
    const auto known = std::ranges::find(names, std::string_view(name, 4));
    if (known == names.end()) throw std::runtime_error("an unexpected chunk");
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(at + 8);
    chunks.push_back({*known, bytes(begin, begin + size)});
    at += 8 + size + size % 2;
  }
  return chunks;
}

bytes webp_header(extent canvas, unsigned flags) {
  bytes header;
  append_number(header, flags, 4);
  append_number(header, canvas.width - 1, 3);
  append_number(header, canvas.height - 1, 3);
  return header;
}

}  // namespace penstock::testing
