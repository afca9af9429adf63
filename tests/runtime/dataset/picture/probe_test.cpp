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
using testing::webp_chunk;
using testing::webp_header;
using testing::webp_of;

namespace {

std::string refusal(const bytes& file, picture_format expected = picture_format::jpeg) {
  const auto info = probe(file, expected);
  return info ? std::string() : info.error().message;
}

/// A frame's header without its pixels.
webp_chunk webp_frame(extent size, bool lossless) {
  bytes content = lossless ? bytes{std::byte{0x2f}} : as_bytes(std::string_view("\0\0\0\x9d\x01\x2a", 6));
  const std::uint32_t packed = lossless ? (size.width - 1) | (size.height - 1) << 14U : size.width | size.height << 16U;
  for (unsigned i = 0; i < 4; ++i) content.push_back(static_cast<std::byte>(packed >> (8 * i) & 0xffU));
  return {lossless ? "VP8L" : "VP8 ", content};
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
  for (const std::size_t at : {std::size_t{33}, plain.size() - 12}) {  // after IHDR, and before IEND
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
  CHECK(refusal(as_bytes("RIFF....WAVE"), picture_format::webp) == "not a WebP: starts with 52 49");
}

TEST_CASE("the size of a WebP is that of its frame, whatever follows it") {
  for (const bool lossless : {true, false}) {
    const webp_chunk frame = webp_frame({300, 16383}, lossless);
    const webp_chunk header{"VP8X", webp_header({300, 16383})};
    const webp_chunk exif{"EXIF", testing::exif_block(6)};
    bytes prefixed = as_bytes(std::string_view("Exif\0\0", 6));
    prefixed.insert(prefixed.end(), exif.content.begin(), exif.content.end());
    for (const auto& [file, orientation] :
         {std::pair(webp_of({frame}), 1U), std::pair(webp_of({header, {"ICCP", bytes(7)}, frame, exif}), 6U),
          std::pair(webp_of({header, frame, {"XMP ", bytes(3)}, {"EXIF", prefixed}}), 6U)}) {
      const auto info = probe(file);
      REQUIRE(info);
      CHECK(info->format == picture_format::webp);
      CHECK(info->stored == extent{300, 16383});
      CHECK(info->orientation == orientation);
    }
  }
}

TEST_CASE("a WebP that is animated, truncated or contradicts itself is refused by name") {
  const webp_chunk frame = webp_frame({30, 20}, true);
  CHECK(refusal(webp_of({{"VP8X", webp_header({30, 20}, 2)}, {"ANIM", bytes(6)}})) == "animated WebP: only still pictures are read");
  CHECK(refusal(webp_of({})) == "corrupt WebP: no picture in it");
  CHECK(refusal(webp_of({{"VP8X", webp_header({30, 21})}, frame})) ==
        "corrupt WebP: a picture of 30 x 20 pixels on a canvas of 30 x 21");
  CHECK(refusal(webp_of({{"VP8L", bytes(4)}})) == "corrupt WebP: no lossless frame header");
  CHECK(refusal(webp_of({{"VP8 ", bytes(10)}})) == "corrupt WebP: no lossy frame header");
  CHECK(refusal(webp_of({webp_frame({0, 20}, false)})) == "a WebP of 0 x 20 pixels");
  CHECK(refusal(webp_of({{"VP8X", bytes(9)}, frame})) == "corrupt WebP: a header chunk of 9 bytes");
  bytes longer = webp_of({frame});
  longer[16] = std::byte{200};
  CHECK(refusal(longer) == "corrupt WebP: a chunk of 200 bytes, of which 6 are in the file");
  const bytes whole = webp_of({frame});
  REQUIRE(probe(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) REQUIRE_FALSE(probe(std::span(whole).first(size)));
  CHECK(refusal(bytes(whole.begin(), whole.end() - 1)) == "truncated WebP: 25 of its 26 bytes");
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

TEST_CASE("picture names end in .jpg, .jpeg, .png or .webp in any letter case") {
  for (const std::string_view name : {"a.jpg", "a.JPG", "a.jpeg", "b.JpEg", "x.PNG", ".jpg", "a.b.png", "a.WebP"})
    CHECK(is_picture_name(name));
  for (const std::string_view name : {"", "jpg", "a.jp", "a.jpg ", "a.gif", "a.jpgx", "png"})
    CHECK_FALSE(is_picture_name(name));
  CHECK(format_by_name("a.PNG") == picture_format::png);
  CHECK(format_by_name("a.webp") == picture_format::webp);
  CHECK(format_by_name("seg.Webp") == picture_format::webp);
  CHECK(format_by_name("a.jpeg") == picture_format::jpeg);
}
