#include "runtime/dataset/picture/png.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

using namespace penstock;
using testing::bytes;
using testing::collecting_sink;
using testing::encode_png;
using testing::make_raster;
using testing::png_options;
using testing::raster;

namespace {

result<std::vector<std::uint8_t>> decode(const bytes& file, const pixel_box& window) {
  const auto info = probe(file);
  if (!info) return tl::unexpected(info.error());
  if (info->format != picture_format::png) return refuse(errc::sample, "not a PNG any more");
  recycled_buffer rows;
  collecting_sink sink(window.width);
  if (auto done = decode_png(file, *info, window, rows, sink); !done) return tl::unexpected(done.error());
  return std::move(sink.pixels);
}

std::vector<std::uint8_t> rgb_of(const raster& picture, const pixel_box& window) {
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = window.top; y < window.top + window.height; ++y) {
    for (std::uint32_t x = window.left; x < window.left + window.width; ++x) {
      const auto* const pixel =
          picture.pixels.data() + (std::size_t{y} * picture.size.width + x) * picture.channels;
      for (unsigned c = 0; c < 3; ++c) pixels.push_back(picture.channels == 1 ? pixel[0] : pixel[c]);
    }
  }
  return pixels;
}

}  // namespace

TEST_CASE("PNG pixels survive encoding, whole and in windows, interlaced or not, in 8 or 16 bits") {
  const extent size{53, 37};
  for (const unsigned channels : {1U, 3U, 4U}) {
    for (const unsigned bits : {8U, 16U}) {
      for (const bool interlaced : {false, true}) {
        INFO(channels << " channels of " << bits << " bits" << (interlaced ? ", interlaced" : ""));
        const raster picture = make_raster(size, channels);
        const bytes file = encode_png(picture, {bits, interlaced});
        for (const pixel_box& window :
             {pixel_box{0, 0, 37, 53}, pixel_box{5, 9, 20, 30}, pixel_box{36, 52, 1, 1}}) {
          const auto got = decode(file, window);
          REQUIRE(got);
          const bool equal = *got == rgb_of(picture, window);
          CHECK(equal);
        }
      }
    }
  }
}

TEST_CASE("every truncation of a PNG is a failure") {
  for (const bool interlaced : {false, true}) {
    const bytes file = encode_png(make_raster({40, 30}), {8, interlaced});
    REQUIRE(decode(file, {0, 0, 30, 40}));
    for (std::size_t length = 0; length < file.size(); ++length) {
      const bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
      REQUIRE_FALSE(decode(cut, {0, 0, 2, 40}));
    }
  }
}

TEST_CASE("a flipped byte anywhere in a PNG is a failure, and never a crash") {
  random_source random(1, 0, 0);
  const bytes good = encode_png(make_raster({40, 30}));
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    bytes file = good;
    const std::uint32_t at = random.below(static_cast<std::uint32_t>(file.size()));
    file[at] ^= static_cast<std::byte>(1U << random.below(8));
    const auto info = probe(file);
    if (info && std::uint64_t{info->stored.width} * info->stored.height > 1000000) continue;
    accepted += decode(file, {0, 0, 1, 1}) ? 1 : 0;
  }
  CHECK(accepted == 0);
}

TEST_CASE("the error for a truncated PNG says so") {
  bytes file = encode_png(make_raster({40, 30}));
  file.resize(file.size() - 1);
  const auto got = decode(file, {0, 0, 30, 40});
  REQUIRE_FALSE(got);
  CHECK(got.error().message == "truncated PNG: the file ends early");
}
