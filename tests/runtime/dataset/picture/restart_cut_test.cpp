#include "runtime/dataset/picture/restart_cut.hpp"

#include "runtime/dataset/picture/jpeg_transcoder.hpp"
#include "runtime/dataset/picture/picture.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <optional>
#include <vector>

using namespace penstock;
using testing::bytes;
using testing::collecting_sink;
using testing::encode_jpeg;
using testing::jpeg_options;
using testing::make_raster;

namespace {

using pixels = std::optional<std::vector<std::uint8_t>>;

pixels decode(std::span<const std::byte> file, const jpeg_request& request) {
  recycled_buffer rows;
  collecting_sink sink(request.window.width);
  if (!decode_jpeg(file, request, rows, sink) || sink.rows != request.window.height) return std::nullopt;
  return std::move(sink.pixels);
}

pixel_box random_box(extent size, random_source& random) {
  pixel_box box{0, 0, 1 + random.below(size.height), 1 + random.below(size.width)};
  box.top = random.below(size.height - box.height + 1);
  box.left = random.below(size.width - box.width + 1);
  return box;
}

/// Windows of all sizes at every scale: the same bits as from the whole file. Returns how many windows skipped part of the file.
unsigned compare_parts(const bytes& file, const bytes& original, extent stored, random_source& random) {
  restart_cutter cutter;
  unsigned cuts = 0;
  for (const unsigned denominator : {1U, 2U, 4U, 8U}) {
    const extent size{scaled_side(stored.width, denominator), scaled_side(stored.height, denominator)};
    for (int i = 0; i < 25; ++i) {
      const pixel_box window = random_box(size, random);
      const jpeg_request request{stored, denominator, window, decode_rule::window_only};
      const auto part = cutter.cut(file, request);
      if (!part) continue;
      ++cuts;
      INFO("1/" << denominator << ", top " << window.top << ", left " << window.left << ", " << window.width
                << " x " << window.height);
      const pixels got = decode(part->file, part->request);
      REQUIRE(got);
      const bool equal = got == decode(original, request);
      REQUIRE(equal);
    }
  }
  return cuts;
}

bytes with_markers(const bytes& file) {
  const auto made = add_restart_markers(file);
  REQUIRE(made);
  REQUIRE(*made);
  return testing::as_bytes((*made)->file);
}

bool is_cut(const bytes& file, const jpeg_request& request) {
  restart_cutter cutter;
  return cutter.cut(file, request).has_value();
}

constexpr extent usual_size{161, 123};
constexpr jpeg_request corner{usual_size, 1, {100, 120, 10, 20}, decode_rule::window_only};

bytes usual_file() {
  return with_markers(encode_jpeg(make_raster(usual_size)));
}

}  // namespace

TEST_CASE("a window decoded from part of a file has the same bits, for every chroma subsampling and size") {
  random_source random(1, 0, 0);
  for (const auto& [horizontal, vertical] :
       {std::pair{1U, 1U}, {2U, 1U}, {2U, 2U}, {1U, 2U}, {4U, 1U}, {4U, 2U}, {1U, 4U}, {2U, 4U}}) {
    for (const extent size :
         {extent{161, 123}, extent{48, 64}, extent{203, 37}, extent{19, 211}, extent{256, 96}}) {
      for (const bool progressive : {false, true}) {
        INFO(horizontal << " x " << vertical << (progressive ? ", progressive" : "") << ", " << size.width
                        << " x " << size.height);
        const bytes file = encode_jpeg(
            make_raster(size), {.horizontal = horizontal, .vertical = vertical, .progressive = progressive});
        CHECK(compare_parts(with_markers(file), file, size, random) > 5);
      }
    }
  }
}

TEST_CASE("a window decoded from part of a file has the same bits in grey and CMYK") {
  random_source random(2, 0, 0);
  const extent size{173, 131};
  for (const unsigned channels : {1U, 4U}) {
    const bytes file = encode_jpeg(make_raster(size, channels));
    CHECK(compare_parts(with_markers(file), file, size, random) > 50);
  }
  const bytes file = encode_jpeg(make_raster(size, 1), {.grey_with_factors = true});
  CHECK(compare_parts(with_markers(file), file, size, random) > 50);
}

TEST_CASE("markers of other tools work too, at any number of MCUs or of MCU rows") {
  random_source random(3, 0, 0);
  const extent size{192, 208};  // 12 x 13 MCUs
  for (const unsigned mcus : {1U, 2U, 3U, 4U, 6U, 12U, 24U, 36U, 48U}) {
    INFO(mcus);
    const bytes file = encode_jpeg(make_raster(size), {.restart_mcus = mcus});
    CHECK(compare_parts(file, file, size, random) > 20);
  }
  const bytes rows = encode_jpeg(make_raster(size), {.restart_rows = 1});
  CHECK(compare_parts(rows, rows, size, random) > 50);
}

TEST_CASE("tiny pictures with markers decode to the same bits") {
  random_source random(4, 0, 0);
  for (std::uint32_t width = 1; width <= 40; width += random.below(5) + 1) {
    for (std::uint32_t height = 1; height <= 40; height += random.below(5) + 1) {
      const bytes file = encode_jpeg(make_raster({width, height}));
      compare_parts(with_markers(file), file, {width, height}, random);
    }
  }
}

TEST_CASE("files whose markers do not help are decoded whole") {
  CHECK(is_cut(usual_file(), corner));
  CHECK_FALSE(is_cut(encode_jpeg(make_raster(usual_size)), corner));                       // no markers
  CHECK_FALSE(is_cut(encode_jpeg(make_raster(usual_size), {.restart_mcus = 5}), corner));  // a row has 11 MCUs
  CHECK_FALSE(
      is_cut(encode_jpeg(make_raster(usual_size), {.restart_mcus = 15}), corner));  // not a whole number of rows
  CHECK_FALSE(is_cut(encode_jpeg(make_raster(usual_size), {.progressive = true, .restart_rows = 1}), corner));
  CHECK_FALSE(
      is_cut(encode_jpeg(make_raster(usual_size), {.interleaved = false, .restart_rows = 1}), corner));
  jpeg_request above = corner;
  above.window = {0, 0, 60, usual_size.width};  // only the part below this window could be skipped
  CHECK_FALSE(is_cut(usual_file(), above));
}

TEST_CASE("files with lost, added or swapped markers are decoded whole") {
  const bytes good = usual_file();
  const auto marker = std::adjacent_find(good.begin(), good.end(), [](std::byte one, std::byte next) {
    return one == std::byte{0xff} && next == std::byte{0xd2};
  });
  REQUIRE(marker != good.end());
  const auto at = marker - good.begin();
  bytes changed = good;
  changed[static_cast<std::size_t>(at) + 1] = std::byte{0xd3};
  CHECK_FALSE(is_cut(changed, corner));
  changed = good;
  changed.erase(changed.begin() + at, changed.begin() + at + 2);
  CHECK_FALSE(is_cut(changed, corner));
  changed = good;
  changed.insert(changed.begin() + at, {std::byte{0xff}, std::byte{0xd2}});
  CHECK_FALSE(is_cut(changed, corner));
  changed = good;
  changed.insert(changed.begin() + at, std::byte{0xff});  // a fill byte
  CHECK(is_cut(changed, corner));
}

TEST_CASE("a truncated file is never decoded in part") {
  const bytes good = usual_file();
  for (std::size_t length = 0; length < good.size(); ++length)
    REQUIRE_FALSE(is_cut({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}, corner));
}

TEST_CASE("corrupt data fails only the windows that need it") {
  const bytes good = usual_file();
  random_source random(5, 0, 0);
  restart_cutter cutter;
  unsigned failed = 0;
  unsigned unharmed = 0;
  for (int i = 0; i < 400; ++i) {
    bytes bad = good;
    // Damage a byte between the header and the end marker.
    const std::size_t at = 700 + random.below(static_cast<std::uint32_t>(bad.size() - 702));
    bad[at] ^= static_cast<std::byte>(1U << random.below(8));
    const jpeg_request request{usual_size, 1, random_box(usual_size, random), decode_rule::window_only};
    const auto part = cutter.cut(bad, request);
    if (!part) continue;
    const pixels whole = decode(bad, request);
    const pixels got = decode(part->file, part->request);
    if (got && whole) {
      const bool equal = *got == *whole;
      REQUIRE(equal);
    }
    const bool lost = whole && !got;
    REQUIRE_FALSE(lost);
    failed += got ? 0 : 1;
    unharmed += got && !whole ? 1 : 0;
  }
  CHECK(failed > 10);
  CHECK(unharmed > 0);
}

TEST_CASE("random crops of packed pictures equal those of the originals, for every EXIF orientation") {
  image_config config;
  config.augment = augment_kind::random_resized_crop;
  config.size = {48, 40};
  std::vector<std::uint8_t> one(std::size_t{48} * 40 * 3);
  std::vector<std::uint8_t> other(one.size());
  picture_loader loader(config);
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    const bytes file = encode_jpeg(make_raster({501, 375}), {.orientation = orientation});
    const bytes packed = with_markers(file);
    for (std::uint64_t sample = 0; sample < 40; ++sample) {
      random_source random(6, 0, sample);
      random_source again(6, 0, sample);
      const auto box = loader.load(file, picture_format::jpeg, random, one);
      const auto same = loader.load(packed, picture_format::jpeg, again, other);
      REQUIRE(box);
      REQUIRE(same);
      REQUIRE(box->box == same->box);
      const bool equal = one == other;
      REQUIRE(equal);
    }
  }
}
