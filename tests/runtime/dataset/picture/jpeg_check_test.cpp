#include "runtime/dataset/picture/jpeg_check.hpp"

#include "runtime/dataset/picture/jpeg.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <random>

using namespace penstock;
using namespace penstock::testing;

namespace {

bool is_plain(const bytes& file) {
  return jpeg_checker().plain_bytes(file).has_value();
}

bool libjpeg_decodes(const bytes& file) {
  const auto info = probe(file);
  if (!info || info->format != picture_format::jpeg) return false;
  collecting_sink sink(info->stored.width);
  recycled_buffer rows;
  return decode_jpeg(file, {info->stored, 1, {0, 0, info->stored.height, info->stored.width}}, rows, sink)
      .has_value();
}

/// The offset of the file's last segment before its coded data.
std::size_t scan_begins(const bytes& file) {
  for (std::size_t i = 2; i + 1 < file.size(); ++i)
    if (file[i] == std::byte{0xff} && file[i + 1] == std::byte{0xda}) return i;
  return 0;
}

}  // namespace

TEST_CASE("baseline files with the usual samplings are plain, up to the end of their picture") {
  for (const unsigned horizontal : {1U, 2U}) {
    for (const unsigned vertical : {1U, 2U}) {
      if (vertical > horizontal) continue;
      for (const unsigned restart_rows : {0U, 1U, 3U}) {
        for (const extent size : {extent{1, 1}, extent{16, 16}, extent{17, 33}, extent{200, 151}}) {
          jpeg_options options;
          options.horizontal = horizontal;
          options.vertical = vertical;
          options.restart_rows = restart_rows;
          bytes file = encode_jpeg(make_raster(size), options);
          const std::size_t whole = file.size();
          CAPTURE(horizontal, vertical, restart_rows, size.width, size.height);
          CHECK(jpeg_checker().plain_bytes(file) == whole);
          file.resize(whole + 100, std::byte{0x5a});  // cameras append such bytes
          CHECK(jpeg_checker().plain_bytes(file) == whole);
        }
      }
    }
  }
}

TEST_CASE("files that a device's decoder does not support are left to the CPU") {
  jpeg_options progressive;
  progressive.progressive = true;
  jpeg_options scans;
  scans.interleaved = false;
  jpeg_options tall;
  tall.horizontal = 1;
  jpeg_options rare;
  rare.horizontal = 4;
  rare.vertical = 1;
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}), progressive)));
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}), scans)));
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}), tall)));
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}), rare)));
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}, 1))));
  CHECK_FALSE(is_plain(encode_jpeg(make_raster({64, 48}, 4))));
  CHECK_FALSE(is_plain(encode_png(make_raster({64, 48}))));
  CHECK_FALSE(is_plain({}));
}

TEST_CASE("one checker can check files with different tables") {
  jpeg_checker checker;
  for (const int quality : {30, 95, 60, 95}) {
    jpeg_options options;
    options.quality = quality;
    const bytes file = encode_jpeg(make_raster({120, 90}), options);
    CHECK(checker.plain_bytes(file) == file.size());
    CHECK_FALSE(checker.plain_bytes(std::span(file).first(file.size() / 2)));
  }
}

TEST_CASE("the check finds every error in coded data that libjpeg finds") {
  const bytes original = encode_jpeg(make_raster({160, 120}));
  const std::size_t data = scan_begins(original) + 14;
  std::mt19937 draw(7);
  jpeg_checker checker;
  std::size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    bytes file = original;
    const std::size_t at = data + draw() % (file.size() - data);
    switch (draw() % 5) {
      case 0: file.resize(at); break;
      case 1:  // truncated, and given an end marker
        file.resize(at);
        file.push_back(std::byte{0xff});
        file.push_back(std::byte{0xd9});
        break;
      case 2: file[at] ^= std::byte(1U << (draw() % 8)); break;
      case 3:
        for (std::size_t k = at; k < std::min(at + 24, file.size()); ++k)
          file[k] = static_cast<std::byte>(draw());
        break;
      default: file.erase(file.begin() + static_cast<std::ptrdiff_t>(at)); break;
    }
    const bool fine = checker.plain_bytes(file).has_value();
    if (!fine) ++refused;
    if (fine && !libjpeg_decodes(file)) FAIL("libjpeg refuses file " << i);
  }
  CHECK(refused > 1500);
}

TEST_CASE("no header makes the check access memory outside its buffers") {
  const bytes original = encode_jpeg(make_raster({64, 48}));
  std::mt19937 draw(11);
  jpeg_checker checker;
  for (int i = 0; i < 20000; ++i) {
    bytes file = original;
    for (unsigned k = draw() % 4; k-- > 0;)
      file[draw() % std::min<std::size_t>(file.size(), 640)] = static_cast<std::byte>(draw());
    if (draw() % 3 == 0) file.resize(draw() % file.size());
    file.shrink_to_fit();
    static_cast<void>(checker.plain_bytes(file));
  }
}

TEST_CASE("a small file that claims a huge picture is refused at once") {
  bytes file = encode_jpeg(make_raster({16, 16}));
  for (std::size_t i = 2; i + 9 < file.size(); ++i) {
    if (file[i] != std::byte{0xff} || file[i + 1] != std::byte{0xc0}) continue;
    for (const std::size_t side : {5U, 7U}) file[i + side] = file[i + side + 1] = std::byte{0xfe};
    break;
  }
  CHECK_FALSE(is_plain(file));
}
