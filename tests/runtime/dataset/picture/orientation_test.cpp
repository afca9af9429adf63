#include "runtime/dataset/picture/orientation.hpp"

#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace penstock;
using testing::bytes;
using testing::exif_block;

TEST_CASE("the eight orientations place stored pixels as the EXIF standard says") {
  // Where the stored pixel (0, 0) of a 4 x 3 file appears: "the 0th row is at the visual ...".
  struct expectation {
    unsigned value;
    extent seen;
    pixel_box corner;  // in the displayed picture: the box that maps to the stored pixel (0, 0)
  };
  const expectation all[] = {{1, {4, 3}, {0, 0, 1, 1}}, {2, {4, 3}, {0, 3, 1, 1}}, {3, {4, 3}, {2, 3, 1, 1}},
                             {4, {4, 3}, {2, 0, 1, 1}}, {5, {3, 4}, {0, 0, 1, 1}}, {6, {3, 4}, {0, 2, 1, 1}},
                             {7, {3, 4}, {3, 2, 1, 1}}, {8, {3, 4}, {3, 0, 1, 1}}};
  for (const expectation& expected : all) {
    const orientation turn = orientation::from_exif(expected.value);
    CHECK(turn.turned({4, 3}) == expected.seen);
    CHECK(turn.to_stored(expected.corner, {4, 3}) == pixel_box{0, 0, 1, 1});
  }
}

TEST_CASE("orientation values outside 1 .. 8 leave a picture unchanged") {
  CHECK(orientation::from_exif(0) == orientation{});
  CHECK(orientation::from_exif(9) == orientation{});
  CHECK(orientation::from_exif(0xffffffffU) == orientation{});
}

TEST_CASE("the orientation is read in both byte orders") {
  for (unsigned value = 1; value <= 8; ++value) {
    CHECK(orientation_in_exif(exif_block(value, false)) == value);
    CHECK(orientation_in_exif(exif_block(value, true)) == value);
  }
}

TEST_CASE("an EXIF block that is truncated or nonsensical means orientation 1") {
  const bytes block = exif_block(6);
  const std::size_t needed = 8 + 2 + 24;  // up to the end of the entry
  for (std::size_t size = 0; size < needed; ++size)
    CHECK(orientation_in_exif(std::span(block).first(size)) == 1);
  CHECK(orientation_in_exif(exif_block(0)) == 1);
  CHECK(orientation_in_exif(exif_block(9)) == 1);
  bytes far = block;
  far[4] = far[5] = far[6] = far[7] = std::byte{0xff};  // an offset of 4 GiB for the directory
  CHECK(orientation_in_exif(far) == 1);
  bytes wrong_type = block;
  wrong_type[24] = std::byte{2};  // ASCII
  CHECK(orientation_in_exif(wrong_type) == 1);
}

TEST_CASE("random EXIF blocks give 1 .. 8 and cause no read outside them") {
  random_source random(1, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    bytes block = exif_block(3, i % 2 == 0);
    for (int flips = 0; flips < 4; ++flips) {
      block[random.below(static_cast<std::uint32_t>(block.size()))] =
          static_cast<std::byte>(random() & 0xffU);
    }
    const unsigned value = orientation_in_exif(block);
    REQUIRE((value >= 1 && value <= 8));
  }
}
