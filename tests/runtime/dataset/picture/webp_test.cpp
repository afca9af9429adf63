#include "runtime/dataset/picture/webp.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <vector>

using namespace penstock;
using testing::bytes;
using testing::chunks_of_webp;
using testing::collecting_sink;
using testing::encode_webp;
using testing::make_raster;
using testing::raster;
using testing::webp_header;
using testing::webp_of;

namespace {

constexpr extent webp_size{53, 37};
constexpr pixel_box webp_whole{0, 0, 37, 53};

result<std::vector<std::uint8_t>> decode_still(const bytes& file, const pixel_box& window) {
  const auto info = probe(file);
  if (!info) return tl::unexpected(info.error());
  recycled_buffer rows;
  collecting_sink sink(window.width);
  if (auto done = decode_webp(file, *info, window, rows, sink); !done) return tl::unexpected(done.error());
  return std::move(sink.pixels);
}

std::string decode_refusal(const bytes& file) {
  const auto got = decode_still(file, {0, 0, 1, 1});
  return got ? "" : got.error().message;
}

std::size_t largest_difference(const raster& picture, const pixel_box& window, const std::vector<std::uint8_t>& got) {
  int largest = 0;
  std::size_t at = 0;
  for (std::uint32_t y = window.top; y < window.top + window.height; ++y) {
    for (std::uint32_t x = window.left; x < window.left + window.width; ++x) {
      const auto* const pixel = picture.pixels.data() + (std::size_t{y} * picture.size.width + x) * picture.channels;
      for (unsigned c = 0; c < 3; ++c, ++at)
        largest = std::max(largest, std::abs(static_cast<int>(pixel[c]) - static_cast<int>(got.at(at))));
    }
  }
  REQUIRE(at == got.size());
  return static_cast<std::size_t>(largest);
}

/// Alpha between 1 and 255: the encoder may change invisible colours.
raster visible_raster(unsigned channels) {
  raster picture = make_raster(webp_size, channels);
  for (std::size_t i = 3; channels == 4 && i < picture.pixels.size(); i += 4) picture.pixels[i] |= 1U;
  return picture;
}

}  // namespace

TEST_CASE("pixels of a lossless WebP survive encoding, whole and in windows, with or without alpha") {
  if (!check_webp()) SKIP("libwebp is missing");
  for (const unsigned channels : {3U, 4U}) {
    const raster picture = visible_raster(channels);
    const bytes file = encode_webp(picture);
    for (const pixel_box& window : {webp_whole, pixel_box{5, 9, 20, 30}, pixel_box{36, 52, 1, 1}}) {
      const auto got = decode_still(file, window);
      REQUIRE(got);
      CHECK(largest_difference(picture, window, *got) == 0);
    }
  }
}

TEST_CASE("alpha of a lossy WebP is dropped without blending") {
  if (!check_webp()) SKIP("libwebp is missing");
  raster picture{webp_size, 4, {}};
  for (std::uint32_t i = 0; i < webp_size.width * webp_size.height; ++i) picture.pixels.insert(picture.pixels.end(), {200, 100, 50, 40});
  const auto got = decode_still(encode_webp(picture, 95), webp_whole);
  REQUIRE(got);
  CHECK(largest_difference(picture, webp_whole, *got) < 8);
}

TEST_CASE("every truncation of a WebP is a failure, whatever its header says") {
  if (!check_webp()) SKIP("libwebp is missing");
  for (const float quality : {0.0F, 80.0F}) {
    const bytes file = encode_webp(make_raster(webp_size), quality);
    REQUIRE(decode_still(file, webp_whole));
    for (std::size_t length = 0; length < file.size(); ++length)
      REQUIRE_FALSE(decode_still(bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)), webp_whole));
    // A truncated file with a corrected header still lacks pixels.
    auto chunks = chunks_of_webp(file);
    REQUIRE(chunks.size() == 1);
    chunks.front().content.resize(chunks.front().content.size() / 2);
    CHECK(decode_refusal(webp_of(chunks)) == "WebP cannot be decoded: its data is corrupt or ends early");
  }
}

TEST_CASE("flipped bits anywhere in a WebP never crash the decoder") {
  if (!check_webp()) SKIP("libwebp is missing");
  random_source random(1, 0, 0);
  for (const float quality : {0.0F, 80.0F}) {
    const bytes good = encode_webp(visible_raster(4), quality);
    int decoded = 0;
    for (int i = 0; i < 1000; ++i) {
      bytes file = good;
      file[random.below(static_cast<std::uint32_t>(file.size()))] ^= static_cast<std::byte>(1U << random.below(8));
      const auto info = probe(file);
      if (!info || std::uint64_t{info->stored.width} * info->stored.height > 1000000) continue;
      const auto got = decode_still(file, {0, 0, 1, 1});
      decoded += got ? 1 : 0;
      if (got) REQUIRE(got->size() == 3);
    }
    CHECK(decoded < 1000);
  }
}

TEST_CASE("a WebP of the extended format is decoded, and one whose parts contradict each other is not") {
  if (!check_webp()) SKIP("libwebp is missing");
  const raster picture = make_raster(webp_size);
  auto chunks = chunks_of_webp(encode_webp(picture));
  chunks.insert(chunks.begin(), {"VP8X", webp_header(webp_size)});
  chunks.push_back({"EXIF", testing::exif_block(3)});
  const auto got = decode_still(webp_of(chunks), webp_whole);
  REQUIRE(got);
  CHECK(largest_difference(picture, webp_whole, *got) == 0);
  // libwebp takes the size from the header before the frame, our probe takes it from the frame.
  chunks.front().content = webp_header({54, 37});
  CHECK_FALSE(decode_still(webp_of(chunks), webp_whole));
}
