#include "runtime/dataset/picture/jpeg.hpp"

#include "runtime/dataset/picture/probe.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

using namespace penstock;
using testing::bytes;
using testing::collecting_sink;
using testing::encode_jpeg;
using testing::jpeg_options;
using testing::make_raster;

namespace {

struct decoded {
  std::string error;
  std::vector<std::uint8_t> pixels;
};

decoded decode(const bytes& file, extent stored, unsigned denominator, const pixel_box& window,
               decode_rule rule) {
  recycled_buffer rows;
  collecting_sink sink(window.width);
  const auto done = decode_jpeg(file, {stored, denominator, window, rule}, rows, sink);
  if (!done) return {done.error().message, {}};
  if (sink.rows != window.height) return {"missing rows", {}};
  return {{}, std::move(sink.pixels)};
}

decoded decode_all(const bytes& file, extent stored) {
  return decode(file, stored, 1, {0, 0, stored.height, stored.width}, decode_rule::whole_file);
}

std::vector<std::uint8_t> cut_out(const std::vector<std::uint8_t>& pixels, std::uint32_t width,
                                  const pixel_box& box) {
  std::vector<std::uint8_t> part;
  for (std::uint32_t y = box.top; y < box.top + box.height; ++y) {
    const auto* const row = pixels.data() + (std::size_t{y} * width + box.left) * 3;
    part.insert(part.end(), row, row + std::size_t{box.width} * 3);
  }
  return part;
}

pixel_box random_box(extent size, random_source& random) {
  pixel_box box{0, 0, 1 + random.below(size.height), 1 + random.below(size.width)};
  box.top = random.below(size.height - box.height + 1);
  box.left = random.below(size.width - box.width + 1);
  return box;
}

/// Checks that windows of all sizes at every scale, including those at the edges, have the same bits as the whole picture.
void compare_windows(const bytes& file, extent stored, random_source& random) {
  for (const unsigned denominator : {1U, 2U, 4U, 8U}) {
    const extent size{scaled_side(stored.width, denominator), scaled_side(stored.height, denominator)};
    const decoded whole =
        decode(file, stored, denominator, {0, 0, size.height, size.width}, decode_rule::whole_file);
    REQUIRE(whole.error.empty());
    for (int i = 0; i < 25; ++i) {
      const pixel_box window = random_box(size, random);
      const decoded part = decode(file, stored, denominator, window, decode_rule::window_only);
      REQUIRE(part.error.empty());
      INFO("1/" << denominator << ", top " << window.top << ", left " << window.left << ", " << window.width
                << " x " << window.height);
      const bool equal = part.pixels == cut_out(whole.pixels, size.width, window);
      REQUIRE(equal);
    }
  }
}

}  // namespace

TEST_CASE("a decoded window has the bits of the whole picture, for every chroma subsampling") {
  random_source random(1, 0, 0);
  for (const auto& [horizontal, vertical] :
       {std::pair{1U, 1U}, {2U, 1U}, {2U, 2U}, {1U, 2U}, {4U, 1U}, {4U, 2U}, {1U, 4U}, {2U, 4U}}) {
    for (const extent size : {extent{161, 123}, extent{48, 64}, extent{203, 37}, extent{19, 211}}) {
      for (const bool progressive : {false, true}) {
        INFO(horizontal << " x " << vertical << (progressive ? ", progressive" : "") << ", " << size.width
                        << " x " << size.height);
        jpeg_options options;
        options.horizontal = horizontal;
        options.vertical = vertical;
        options.progressive = progressive;
        compare_windows(encode_jpeg(make_raster(size), options), size, random);
      }
    }
  }
}

TEST_CASE("a decoded window has the bits of the whole picture in grey, CMYK and with restart markers") {
  random_source random(2, 0, 0);
  const extent size{173, 131};
  compare_windows(encode_jpeg(make_raster(size, 1)), size, random);
  compare_windows(encode_jpeg(make_raster(size, 1), {.grey_with_factors = true}), size, random);
  compare_windows(encode_jpeg(make_raster(size, 1), {.progressive = true, .grey_with_factors = true}), size,
                  random);
  compare_windows(encode_jpeg(make_raster(size, 4)), size, random);
  jpeg_options restarts;
  restarts.restart_rows = 1;
  compare_windows(encode_jpeg(make_raster(size), restarts), size, random);
  restarts.progressive = true;
  compare_windows(encode_jpeg(make_raster(size, 1), restarts), size, random);
  compare_windows(encode_jpeg(make_raster(size), {.interleaved = false}), size, random);
}

TEST_CASE("a decoded window has the bits of the whole picture in tiny pictures") {
  random_source random(3, 0, 0);
  for (std::uint32_t width = 1; width <= 18; width += random.below(3) + 1) {
    for (std::uint32_t height = 1; height <= 18; height += random.below(3) + 1) {
      const extent size{width, height};
      compare_windows(encode_jpeg(make_raster(size)), size, random);
    }
  }
}

TEST_CASE("decoded pixels are close to those that were encoded") {
  const testing::raster picture = make_raster({200, 150});
  jpeg_options options;
  options.quality = 100;
  options.horizontal = options.vertical = 1;
  const decoded got = decode_all(encode_jpeg(picture, options), picture.size);
  REQUIRE(got.error.empty());
  int worst = 0;
  for (std::size_t i = 0; i < got.pixels.size(); ++i)
    worst = std::max(worst, std::abs(got.pixels[i] - picture.pixels[i]));
  CHECK(worst <= 4);
}

TEST_CASE("every truncation of a JPEG is a failure under both rules") {
  const extent size{90, 70};
  random_source random(4, 0, 0);
  for (const bool progressive : {false, true}) {
    jpeg_options options;
    options.progressive = progressive;
    options.orientation = 6;
    const bytes file = encode_jpeg(make_raster(size), options);
    REQUIRE(decode_all(file, size).error.empty());
    for (std::size_t length = 0; length < file.size(); ++length) {
      const bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
      REQUIRE_FALSE(decode_all(cut, size).error.empty());
      const decoded part = decode(cut, size, 1, {2, 3, 5, 40}, decode_rule::window_only);
      REQUIRE_FALSE(part.error.empty());
    }
  }
}

TEST_CASE("the error for a truncated JPEG says so, even when the window was decoded before the cut") {
  const extent size{90, 200};
  bytes file = encode_jpeg(make_raster(size));
  file.resize(file.size() / 2);
  const decoded part = decode(file, size, 1, {0, 0, 8, 90}, decode_rule::window_only);
  CHECK(part.error == "truncated: no end-of-image marker");
  CHECK(decode_all(file, size).error == "JPEG cannot be decoded: Premature end of JPEG file");
}

TEST_CASE("bytes after the end-of-image marker do not matter") {
  const extent size{90, 70};
  bytes file = encode_jpeg(make_raster(size));
  const auto whole = decode_all(file, size);
  file.resize(file.size() + 1000, std::byte{0x41});
  const bool equal = decode_all(file, size).pixels == whole.pixels;
  CHECK(equal);
  CHECK(decode(file, size, 1, {0, 0, 4, 90}, decode_rule::window_only).error.empty());
}

TEST_CASE("flipped bytes give a picture or a failure, never a crash") {
  random_source random(5, 0, 0);
  for (const bool progressive : {false, true}) {
    const extent size{75, 60};
    jpeg_options options;
    options.progressive = progressive;
    options.restart_rows = 1;
    const bytes good = encode_jpeg(make_raster(size), options);
    int failures = 0;
    for (int i = 0; i < 1500; ++i) {
      bytes file = good;
      for (std::uint32_t flips = 1 + random.below(4); flips > 0; --flips) {
        file[random.below(static_cast<std::uint32_t>(file.size()))] =
            static_cast<std::byte>(random() & 0xffU);
      }
      const auto info = probe(file);
      if (!info || info->format != picture_format::jpeg) continue;
      if (std::uint64_t{info->stored.width} * info->stored.height > 1000000)
        continue;  // limited by max_pixels
      const extent found = info->stored;
      const pixel_box window = random_box(found, random);
      if (!decode_all(file, found).error.empty()) ++failures;
      (void)decode(file, found, 1, window, decode_rule::window_only);
    }
    CHECK(failures > 100);
  }
}

TEST_CASE("a file without Huffman tables does not inherit those of the previous file") {
  const extent size{64, 64};
  jpeg_options options;
  options.progressive = true;  // its own tables differ from the standard ones, to which libjpeg falls back
  const bytes good = encode_jpeg(make_raster(size), options);
  REQUIRE(decode_all(good, size).error.empty());
  bytes without = good;
  constexpr std::byte prefix{0xff};
  for (std::size_t i = 0; i + 1 < without.size(); ++i) {
    if (without[i] == prefix && without[i + 1] == std::byte{0xc4})
      without[i + 1] = std::byte{0xfe};  // the tables become a comment
  }
  CHECK_FALSE(decode_all(without, size).error.empty());
}

TEST_CASE("a file with hundreds of scans is refused before they take minutes") {
  const extent size{64, 64};
  bytes file = encode_jpeg(make_raster(size), {.interleaved = false});
  std::size_t scan = file.size();
  while (!(file[scan - 2] == std::byte{0xff} && file[scan - 1] == std::byte{0xda})) --scan;
  const bytes last_scan(file.begin() + static_cast<std::ptrdiff_t>(scan) - 2, file.end() - 2);
  const auto repeated = [&](int times) {
    bytes bomb(file.begin(), file.end() - 2);
    for (int i = 0; i < times; ++i) bomb.insert(bomb.end(), last_scan.begin(), last_scan.end());
    bomb.insert(bomb.end(), file.end() - 2, file.end());
    return bomb;
  };
  CHECK(decode_all(repeated(400), size).error.empty());
  CHECK(decode_all(repeated(600), size).error == "JPEG cannot be decoded: more than 500 scans");
}

TEST_CASE("a header that contradicts the probed one is refused") {
  const bytes file = encode_jpeg(make_raster({64, 64}));
  CHECK(decode_all(file, {64, 65}).error ==
        "JPEG cannot be decoded: its frame headers contradict each other");
}
