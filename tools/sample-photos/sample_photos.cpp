#include "tools/sample-photos/sample_photos.hpp"

// clang-format off
#include <cstdio>  // jpeglib.h needs it first
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

constexpr int width = 500;
constexpr int height = 375;
constexpr int classes = 4;

struct wave {
  float amplitude, along_x, along_y, phase;
};

/// sin and cos of each column's part of a wave's angle, or of each row's.
struct angles {
  angles(float step, float phase, int count) : sine(count), cosine(count) {
    for (int i = 0; i < count; ++i) {
      sine[i] = std::sin(step * static_cast<float>(i) + phase);
      cosine[i] = std::cos(step * static_cast<float>(i) + phase);
    }
  }
  std::vector<float> sine, cosine;
};

/// Adds amplitude * sin(along_x * x + along_y * y + phase) to a channel.
void add_wave(std::vector<float>& channel, const wave& w) {
  const angles columns(w.along_x, w.phase, width);
  const angles rows(w.along_y, 0, height);
  for (int y = 0; y < height; ++y) {
    const float sine = w.amplitude * rows.sine[y];
    const float cosine = w.amplitude * rows.cosine[y];
    float* const row = channel.data() + std::size_t(y) * width;
    for (int x = 0; x < width; ++x) row[x] += columns.sine[x] * cosine + columns.cosine[x] * sine;
  }
}

/// Moves the pixels of a disc halfway to its tint.
void add_disc(std::vector<float>& channel, float centre_x, float centre_y, float radius, float tint) {
  const auto within = [](float value, int end) { return std::clamp(static_cast<int>(value), 0, end); };
  for (int y = within(centre_y - radius, height); y < within(centre_y + radius + 1, height); ++y) {
    for (int x = within(centre_x - radius, width); x < within(centre_x + radius + 1, width); ++x) {
      const float dx = static_cast<float>(x) - centre_x;
      const float dy = static_cast<float>(y) - centre_y;
      float& value = channel[std::size_t(y) * width + x];
      if (dx * dx + dy * dy < radius * radius) value = 0.5F * value + 127 * tint;
    }
  }
}

/// A few waves for each channel, a few discs, grain.
std::vector<std::uint8_t> paint(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> unit(0, 1);
  std::array<std::vector<float>, 3> channels;
  for (auto& channel : channels) channel.assign(std::size_t{width} * height, 128);
  for (std::size_t i = 0; i < channels[0].size(); ++i) {
    const float grain = 24 * (unit(random) - 0.5F);
    for (auto& channel : channels) channel[i] += grain;
  }
  for (auto& channel : channels) {
    for (int i = 0; i < 5; ++i)
      add_wave(channel, {40 * unit(random), 0.03F * unit(random), 0.03F * unit(random), 6.28F * unit(random)});
  }
  for (int i = 0; i < 12; ++i) {
    const float x = width * unit(random);
    const float y = height * unit(random);
    const float radius = 10 + 60 * unit(random);
    for (auto& channel : channels) add_disc(channel, x, y, radius, unit(random));
  }
  std::vector<std::uint8_t> pixels(3 * channels[0].size());
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(std::clamp(channels[i % 3][i / 3], 0.0F, 255.0F));
  return pixels;
}

/// In memory: libjpeg would end the process if a file could not be written.
struct jpeg_file {
  jpeg_file() = default;
  jpeg_file(const jpeg_file&) = delete;
  jpeg_file& operator=(const jpeg_file&) = delete;
  ~jpeg_file() { std::free(bytes); }
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): the type in libjpeg's interface
};

void encode(std::vector<std::uint8_t>& pixels, jpeg_file& to) {
  jpeg_compress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, &to.bytes, &to.size);
  c.image_width = width;
  c.image_height = height;
  c.input_components = 3;
  c.in_color_space = JCS_RGB;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 90, TRUE);
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    JSAMPROW row = pixels.data() + std::size_t{c.next_scanline} * width * 3;
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
}

/// 0, or an errno.
int write_jpeg(const std::string& file, std::vector<std::uint8_t>& pixels) {
  jpeg_file jpeg;
  encode(pixels, jpeg);
  FILE* const out = std::fopen(file.c_str(), "wb");
  if (out == nullptr) return errno;
  int why = std::fwrite(jpeg.bytes, 1, jpeg.size, out) == jpeg.size ? 0 : errno;
  if (std::fclose(out) != 0 && why == 0) why = errno;
  if (why != 0) std::remove(file.c_str());  // a part of a photograph would be a bad sample
  return why;
}

std::filesystem::path place_of(const std::filesystem::path& folder, int photo) {
  return folder / ("class-" + std::to_string(photo % classes));
}

std::string name_of(int photo) {
  const std::string digits = std::to_string(photo);
  return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits + ".jpg";
}

}  // namespace

std::optional<unwritten_photo> draw_sample_photos(const std::filesystem::path& folder, int count) {
  for (int c = 0; c < std::min(classes, count); ++c) {
    std::error_code trouble;  // seen when the first file cannot be written
    std::filesystem::create_directories(place_of(folder, c), trouble);
  }
  std::atomic<int> next = 0;
  std::atomic<bool> failed = false;
  std::optional<unwritten_photo> unwritten;
  const auto work = [&] {
    for (int i = next++; i < count && !failed; i = next++) {
      auto pixels = paint(static_cast<std::uint32_t>(i));
      const auto file = place_of(folder, i) / name_of(i);
      if (const int why = write_jpeg(file, pixels); why != 0 && !failed.exchange(true)) unwritten = {file, why};
    }
  };
  {
    std::vector<std::jthread> threads(std::max(1U, std::thread::hardware_concurrency()));
    for (auto& thread : threads) thread = std::jthread(work);
  }
  return unwritten;
}

}  // namespace penstock
