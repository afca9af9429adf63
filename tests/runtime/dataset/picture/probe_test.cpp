#include "runtime/dataset/picture/probe.hpp"

#include "runtime/dataset/listing/names.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using testing::as_bytes;
using testing::bytes;
using testing::encode_jpeg;
using testing::encode_png;
using testing::make_raster;

namespace {

std::string refusal(const bytes& file, picture_format expected = picture_format::jpeg) {
  const auto info = probe(file, expected);
  return info ? std::string() : info.error().message;
}

}  // namespace

TEST_CASE("headers give format, size and orientation") {
  const auto jpeg = probe(encode_jpeg(make_raster({70, 50}), {.orientation = 8}));
  REQUIRE(jpeg);
  CHECK(jpeg->format == picture_format::jpeg);
  CHECK(jpeg->stored == extent{70, 50});
  CHECK(jpeg->orientation == 8);
  const auto png = probe(encode_png(make_raster({70, 50}), {8, true}), picture_format::jpeg);
  REQUIRE(png);
  CHECK(png->format == picture_format::png);
  CHECK(png->stored == extent{70, 50});
  CHECK(png->orientation == 1);
  CHECK(png->interlaced);
}

TEST_CASE("the orientation of a PNG is found before and after its pixels") {
  bytes chunk =
      as_bytes(std::string_view("\0\0\0\x26"
                                "eXIf",
                                8));
  const bytes block = testing::exif_block(3);
  REQUIRE(block.size() == 0x26);
  chunk.insert(chunk.end(), block.begin(), block.end());
  chunk.resize(chunk.size() + 4);  // only the decoder checks the checksum
  const bytes plain = encode_png(make_raster({9, 9}));
  for (const std::size_t at : {std::size_t{33}, plain.size() - 12}) {  // after IHDR, before IEND
    bytes file = plain;
    file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), chunk.begin(), chunk.end());
    const auto info = probe(file);
    REQUIRE(info);
    CHECK(info->orientation == 3);
  }
}

TEST_CASE("a file that is not a picture is refused with its first bytes") {
  CHECK(refusal({}) == "the file is empty");
  CHECK(refusal(as_bytes("hello, I am a text")) == "not a JPEG: starts with 68 65");
  CHECK(refusal(as_bytes("hello"), picture_format::png) == "not a PNG: starts with 68 65");
  CHECK(refusal(bytes(100, std::byte{0})) == "not a JPEG: starts with 00 00");
  CHECK(refusal(as_bytes("G")) == "not a JPEG: starts with 47");
  CHECK(refusal(as_bytes("GIF89a..")) == "not a JPEG: starts with 47 49 (a GIF)");
  CHECK(refusal(as_bytes("RIFF....WEBPVP8 ")) == "not a JPEG: starts with 52 49 (a WebP)");
}

TEST_CASE("a truncated header is refused") {
  const bytes jpeg = encode_jpeg(make_raster({70, 50}));
  std::size_t scan = 0;
  while (!(jpeg[scan] == std::byte{0xff} && jpeg[scan + 1] == std::byte{0xda})) ++scan;
  for (std::size_t size = 0; size < scan + 2; ++size) REQUIRE_FALSE(probe(std::span(jpeg).first(size)));
  CHECK(probe(std::span(jpeg).first(scan + 2)));
  const bytes png = encode_png(make_raster({70, 50}));
  for (std::size_t size = 0; size < 29; ++size) REQUIRE_FALSE(probe(std::span(png).first(size)));
}

TEST_CASE("a picture without pixels is refused") {
  bytes png = encode_png(make_raster({70, 50}));
  png[16] = png[17] = png[18] = png[19] = std::byte{0};
  CHECK(refusal(png) == "a PNG of 0 x 50 pixels");
  bytes jpeg = encode_jpeg(make_raster({70, 50}));
  for (std::size_t i = 0; i + 6 < jpeg.size(); ++i) {
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0}) {
      jpeg[i + 5] = jpeg[i + 6] = std::byte{0};
      break;
    }
  }
  CHECK(refusal(jpeg) == "a JPEG of 70 x 0 pixels");
}

TEST_CASE("probing random headers never reads outside them") {
  random_source random(1, 0, 0);
  const bytes good = encode_jpeg(make_raster({70, 50}), {.orientation = 2});
  for (int i = 0; i < 20000; ++i) {
    bytes file(good.begin(), good.begin() + 200);
    for (int flips = 0; flips < 5; ++flips)
      file[random.below(200)] = static_cast<std::byte>(random() & 0xffU);
    (void)probe(file);
  }
}

TEST_CASE("picture names end in .jpg, .jpeg or .png in any letter case") {
  for (const std::string_view name : {"a.jpg", "a.JPG", "a.jpeg", "b.JpEg", "x.PNG", ".jpg", "a.b.png"})
    CHECK(is_picture_name(name));
  for (const std::string_view name : {"", "jpg", "a.jp", "a.jpg ", "a.gif", "a.jpgx", "png"})
    CHECK_FALSE(is_picture_name(name));
  CHECK(format_by_name("a.PNG") == picture_format::png);
  CHECK(format_by_name("a.jpeg") == picture_format::jpeg);
}
