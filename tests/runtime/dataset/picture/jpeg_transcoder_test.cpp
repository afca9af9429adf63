#include "runtime/dataset/picture/jpeg_transcoder.hpp"

#include "runtime/dataset/picture/jpeg.hpp"
#include "runtime/dataset/picture/jpeg_segments.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>

using namespace penstock;
using testing::as_bytes;
using testing::bytes;
using testing::encode_jpeg;
using testing::jpeg_options;
using testing::make_raster;

namespace {

constexpr extent usual_size{203, 131};

std::string transcoded(const bytes& file, bool progressive = false) {
  auto made = add_restart_markers(file);
  REQUIRE(made);
  REQUIRE(*made);
  CHECK((*made)->was_progressive == progressive);
  return std::move((*made)->file);
}

std::vector<std::uint8_t> all_pixels(const bytes& file, extent size) {
  recycled_buffer rows;
  testing::collecting_sink sink(size.width);
  REQUIRE(decode_jpeg(file, {size, 1, {0, 0, size.height, size.width}}, rows, sink));
  return std::move(sink.pixels);
}

std::span<const std::uint8_t> octets(std::string_view file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

/// The file with an extra segment after its first two bytes.
bytes with_segment(const bytes& file, unsigned marker, std::string_view contents) {
  const std::size_t length = contents.size() + 2;
  const bytes segment{std::byte{0xff}, static_cast<std::byte>(marker), static_cast<std::byte>(length >> 8U),
                      static_cast<std::byte>(length)};
  bytes made(file.begin(), file.begin() + 2);
  made.insert(made.end(), segment.begin(), segment.end());
  const bytes text = as_bytes(contents);
  made.insert(made.end(), text.begin(), text.end());
  made.insert(made.end(), file.begin() + 2, file.end());
  return made;
}

}  // namespace

TEST_CASE("restart markers change no pixel, whatever the subsampling, scans and colours") {
  for (const auto& [horizontal, vertical] : {std::pair{1U, 1U}, {2U, 1U}, {2U, 2U}, {1U, 2U}, {4U, 1U}}) {
    for (const bool progressive : {false, true}) {
      const bytes file =
          encode_jpeg(make_raster(usual_size),
                      {.horizontal = horizontal, .vertical = vertical, .progressive = progressive});
      const bool equal =
          all_pixels(as_bytes(transcoded(file, progressive)), usual_size) == all_pixels(file, usual_size);
      CHECK(equal);
    }
  }
  for (const bytes& file :
       {encode_jpeg(make_raster(usual_size, 1)),
        encode_jpeg(make_raster(usual_size, 1), {.grey_with_factors = true}),
        encode_jpeg(make_raster(usual_size, 4)), encode_jpeg(make_raster(usual_size), {.interleaved = false}),
        encode_jpeg(make_raster(usual_size), {.restart_rows = 2})}) {
    const bool equal = all_pixels(as_bytes(transcoded(file)), usual_size) == all_pixels(file, usual_size);
    CHECK(equal);
  }
}

TEST_CASE("an interval divides a row evenly and is at most 32 pixels wide") {
  CHECK(restart_interval_for(32, 16) == 2);
  CHECK(restart_interval_for(31, 16) == 1);
  CHECK(restart_interval_for(64, 8) == 4);
  CHECK(restart_interval_for(63, 8) == 3);
  CHECK(restart_interval_for(61, 8) == 1);
  CHECK(restart_interval_for(1, 8) == 1);
  CHECK(restart_interval_for(12, 32) == 1);
  const std::string file = transcoded(encode_jpeg(make_raster({256, 64})));
  const auto segments = jpeg_segments::read(octets(file));
  REQUIRE(segments);
  CHECK(segments->restart_interval == 2);
}

TEST_CASE("transcoding again changes no byte") {
  const std::string once = transcoded(encode_jpeg(make_raster(usual_size), {.progressive = true}), true);
  CHECK(transcoded(as_bytes(once)) == once);
}

TEST_CASE("metadata is kept: orientation, colour profile, comments") {
  bytes file = encode_jpeg(make_raster(usual_size), {.orientation = 6});
  const std::string profile = std::string("ICC_PROFILE\0\1\1", 14) + std::string(3000, 'p');
  file = with_segment(file, 0xe2, profile);
  file = with_segment(file, 0xfe, "a comment");
  const std::string made = transcoded(file);
  CHECK(made.find(profile) != std::string::npos);
  CHECK(made.find("a comment") != std::string::npos);
  const bytes made_bytes = as_bytes(made);
  const auto info = probe(made_bytes);
  REQUIRE(info);
  CHECK(info->orientation == 6);
  CHECK(info->restart_markers);
}

TEST_CASE("Adobe's segment is written once, so that CMYK stays inverted") {
  const std::string made = transcoded(encode_jpeg(make_raster(usual_size, 4)));
  const std::size_t first = made.find("Adobe");
  REQUIRE(first != std::string::npos);
  CHECK(made.find("Adobe", first + 1) == std::string::npos);
}

TEST_CASE("bytes after the picture are dropped") {
  bytes file = encode_jpeg(make_raster(usual_size));
  const std::string made = transcoded(file);
  const bytes more = as_bytes("another picture");
  file.insert(file.end(), more.begin(), more.end());
  CHECK(transcoded(file) == made);
}

TEST_CASE("a JPEG whose MCU would have more than ten blocks is left unchanged") {
  const auto made = add_restart_markers(
      encode_jpeg(make_raster(usual_size, 4), {.horizontal = 4, .vertical = 2, .interleaved = false}));
  REQUIRE(made);
  CHECK_FALSE(*made);
}

TEST_CASE("every truncation of a JPEG is refused") {
  for (const bool progressive : {false, true}) {
    const bytes file = encode_jpeg(make_raster({60, 40}), {.progressive = progressive});
    for (std::size_t length = 0; length < file.size(); ++length) {
      const auto made = add_restart_markers(std::span(file).first(length));
      REQUIRE_FALSE(made);
    }
  }
}
