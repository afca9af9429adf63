#include "tools/penstock/dataset/contact_sheet.hpp"

#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"

#include <spng.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>

namespace penstock::cli {
namespace {

using colour = std::array<std::uint8_t, 3>;

constexpr colour paper{24, 26, 29};
constexpr colour ink{222, 224, 227};
constexpr colour pale_ink{150, 156, 164};
constexpr std::uint32_t margin = 12;
constexpr std::uint32_t gap = 10;
constexpr std::uint32_t line_height = glyph_height + 1;
constexpr std::uint32_t narrowest_tile = 14 * glyph_width;
constexpr std::uint32_t columns_max = 16;
constexpr double wider_than_high = 1.4;

class canvas {
 public:
  canvas(std::uint32_t width, std::uint32_t height) : picture_{width, height, {}} {
    picture_.pixels.resize(std::size_t{width} * height * 3);
    for (std::size_t i = 0; i < picture_.pixels.size(); ++i) picture_.pixels[i] = paper[i % 3];
  }
  void put(std::uint32_t x, std::uint32_t y, const colour& c) {
    if (x >= picture_.width || y >= picture_.height) return;
    std::copy(
        c.begin(), c.end(),
        picture_.pixels.begin() + static_cast<std::ptrdiff_t>((std::size_t{y} * picture_.width + x) * 3));
  }
  void write(std::uint32_t x, std::uint32_t y, const std::string& text, const colour& c) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      for (unsigned gy = 0; gy < glyph_height; ++gy) {
        for (unsigned gx = 0; gx < glyph_width; ++gx) {
          if (glyph_pixel(text[i], gx, gy))
            put(x + static_cast<std::uint32_t>(i) * glyph_width + gx, y + gy, c);
        }
      }
    }
  }
  void paste(std::uint32_t x, std::uint32_t y, const rgb_picture& p, std::uint32_t times) {
    for (std::uint32_t py = 0; py < p.height * times; ++py) {
      for (std::uint32_t px = 0; px < p.width * times; ++px) {
        const std::uint8_t* from = p.pixels.data() + (std::size_t{py / times} * p.width + px / times) * 3;
        put(x + px, y + py, {from[0], from[1], from[2]});
      }
    }
  }
  [[nodiscard]] rgb_picture take() && { return std::move(picture_); }

 private:
  rgb_picture picture_;
};

std::string fitting(const std::string& text, std::uint32_t pixels) {
  const std::size_t letters = pixels / glyph_width;
  if (text.size() <= letters) return text;
  return letters > 2 ? text.substr(0, letters - 2) + ".." : text.substr(0, letters);
}

}  // namespace

rgb_picture contact_sheet(const std::string& title, const std::vector<sheet_tile>& tiles) {
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  std::size_t lines = 0;
  for (const sheet_tile& t : tiles) {
    width = std::max(width, t.picture.width);
    height = std::max(height, t.picture.height);
    lines = std::max(lines, t.lines.size());
  }
  const std::uint32_t times = (narrowest_tile + width - 1) / width;
  const std::uint32_t cell_width = width * times;
  const std::uint32_t cell_height = height * times + 3 + static_cast<std::uint32_t>(lines) * line_height;
  const auto count = static_cast<std::uint32_t>(tiles.size());
  const double square = std::sqrt(wider_than_high * count * cell_height / cell_width);
  const std::uint32_t columns = std::clamp<std::uint32_t>(static_cast<std::uint32_t>(std::lround(square)), 1,
                                                          std::clamp<std::uint32_t>(count, 1, columns_max));
  const std::uint32_t rows = (count + columns - 1) / columns;

  const auto title_width = static_cast<std::uint32_t>(title.size()) * glyph_width;
  const std::uint32_t top = margin + line_height + gap;
  canvas sheet(2 * margin + std::max(columns * (cell_width + gap) - gap, title_width),
               top + rows * (cell_height + gap) - (rows > 0 ? gap : 0) + margin);
  sheet.write(margin, margin, title, ink);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t x = margin + i % columns * (cell_width + gap);
    const std::uint32_t y = top + i / columns * (cell_height + gap);
    sheet.paste(x, y, tiles[i].picture, times);
    for (std::size_t k = 0; k < tiles[i].lines.size(); ++k) {
      sheet.write(x, y + height * times + 3 + static_cast<std::uint32_t>(k) * line_height,
                  fitting(tiles[i].lines[k], cell_width), k == 0 ? ink : pale_ink);
    }
  }
  return std::move(sheet).take();
}

result<void> check_png_name(std::string_view option, const std::string& path) {
  const bool other = is_picture_name(path) && !ends_with_any_case(path, ".png");
  if (!other && unread_picture_ending(path).empty()) return {};
  return refuse(errc::usage, "{} '{}': the picture is a PNG, so name it {}.png", option, printable(path),
                printable(path.substr(path.rfind('/') + 1, path.rfind('.') - path.rfind('/') - 1)));
}

result<void> write_png(const std::string& path, const rgb_picture& picture) {
  const std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> png(spng_ctx_new(SPNG_CTX_ENCODER),
                                                                &spng_ctx_free);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "wbe"),
                                                   [](FILE* f) { return f == nullptr ? 0 : std::fclose(f); });
  if (!file) return refuse_os(errc::io, errno, fmt::format("writing '{}'", printable(path)));
  spng_ihdr header{};
  header.width = picture.width;
  header.height = picture.height;
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  int status = spng_set_png_file(png.get(), file.get());
  if (status == 0) status = spng_set_ihdr(png.get(), &header);
  if (status == 0)
    status = spng_encode_image(png.get(), picture.pixels.data(), picture.pixels.size(), SPNG_FMT_PNG,
                               SPNG_ENCODE_FINALIZE);
  if (status != 0 || std::fflush(file.get()) != 0)
    return refuse(errc::io, "writing '{}': {}", printable(path),
                  status != 0 ? spng_strerror(status) : "the disk refused");
  return {};
}

}  // namespace penstock::cli
