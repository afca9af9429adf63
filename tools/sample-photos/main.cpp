// Makes a folder of JPEGs for trying penstock without photographs: smooth fields of colour with shapes and
// grain, 500 x 375 at quality 90, about as large and as hard to decode as the photographs of an image
// collection.
//
//   penstock-sample-photos FOLDER COUNT
// clang-format off
#include <cstdio>  // jpeglib.h needs it first
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int width = 500;
constexpr int height = 375;
constexpr int classes = 4;
constexpr int count_max = 1'000'000;  // 40 GB of files

struct wave {
  float amplitude, along_x, along_y, phase;
};

/// A few waves for each channel, a few discs, grain.
std::vector<std::uint8_t> paint(std::mt19937& random) {
  std::uniform_real_distribution<float> unit(0, 1);
  std::vector<std::uint8_t> pixels(std::size_t{width} * height * 3);
  std::array<std::array<wave, 5>, 3> fields{};
  for (auto& field : fields) {
    for (wave& w : field)
      w = {40 * unit(random), 0.03F * unit(random), 0.03F * unit(random), 6.28F * unit(random)};
  }
  struct disc {
    float x, y, radius;
    std::array<float, 3> tint;
  };
  std::vector<disc> discs(12);
  for (disc& d : discs) {
    d = {width * unit(random),
         height * unit(random),
         10 + 60 * unit(random),
         {unit(random), unit(random), unit(random)}};
  }
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const float grain = 24 * (unit(random) - 0.5F);
      for (std::size_t c = 0; c < 3; ++c) {
        float value = 128 + grain;
        for (const wave& w : fields[c])
          value += w.amplitude * std::sin(w.along_x * x + w.along_y * y + w.phase);
        for (const disc& d : discs) {
          const float dx = x - d.x;
          const float dy = y - d.y;
          if (dx * dx + dy * dy < d.radius * d.radius) value = 0.5F * value + 127 * d.tint[c];
        }
        pixels[(std::size_t(y) * width + x) * 3 + c] =
            static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
      }
    }
  }
  return pixels;
}

bool write_jpeg(const std::string& file, std::vector<std::uint8_t>& pixels) {
  const std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(file.c_str(), "wb"), std::fclose);
  if (!out) return false;
  jpeg_compress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  jpeg_stdio_dest(&c, out.get());
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
  return std::ferror(out.get()) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: penstock-sample-photos FOLDER COUNT\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  int count = 0;
  const char* const end = argv[2] + std::strlen(argv[2]);
  const auto [rest, status] = std::from_chars(argv[2], end, count);
  if (status != std::errc{} || rest != end || count < 1 || count > count_max) {
    std::fprintf(stderr, "penstock-sample-photos: '%s' photographs: must be a whole number from 1 to %d\n",
                 argv[2], count_max);
    return 2;
  }
  std::mt19937 random(1);
  for (int i = 0; i < count; ++i) {
    const auto place = folder / ("class-" + std::to_string(i % classes));
    std::error_code trouble;
    std::filesystem::create_directories(place, trouble);
    char name[32];
    std::snprintf(name, sizeof name, "%05d.jpg", i);
    auto pixels = paint(random);
    if (!write_jpeg(place / name, pixels)) {
      std::fprintf(stderr, "penstock-sample-photos: cannot write %s\n", (place / name).c_str());
      return 1;
    }
  }
  return 0;
}
