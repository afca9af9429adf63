#include "runtime/dataset/picture/image_folder.hpp"

#include "runtime/base/encoded_picture.hpp"
#include "runtime/dataset/factory.hpp"
#include "tests/runtime/dataset/fixtures.hpp"
#include "tests/runtime/dataset/loading.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

using namespace penstock;
using testing::bytes;
using testing::encode_jpeg;
using testing::encode_png;
using testing::load_error;
using testing::load_into;
using testing::make_raster;
using testing::raster;
using testing::sample_memory;
using testing::temporary_folder;

namespace {

config settings(const temporary_folder& folder, augment_kind augment = augment_kind::random_resized_crop) {
  config all;
  all.dataset.path = folder.path();
  all.image.size = {32, 48};
  all.image.augment = augment;
  return all;
}

std::unique_ptr<Dataset> open(const config& all) {
  const auto prepared = prepare_dataset(all);
  REQUIRE(prepared);
  auto made = make_dataset(all, prepared->index.get());
  REQUIRE(made);
  CHECK((*made)->describe() == prepared->description);
  return std::move(*made);
}

std::int32_t number(const bytes& tensor, std::size_t i) {
  std::int32_t value = 0;
  std::memcpy(&value, tensor.data() + 4 * i, sizeof value);
  return value;
}

/// Keeps Catch2 from printing thousands of bytes.
bool equal(const sample_memory& one, const sample_memory& other, std::size_t tensor) {
  return one.tensor(tensor) == other.tensor(tensor);
}

}  // namespace

TEST_CASE("an image folder gives image, label, crop and flip") {
  const temporary_folder folder;
  folder.write("cat/1.jpg", encode_jpeg(make_raster({100, 80})));
  folder.write("dog/2.png", encode_png(make_raster({64, 48})));
  const auto dataset = open(settings(folder, augment_kind::none));
  const dataset_description described = dataset->describe();
  CHECK(described.type == "image-folder");
  CHECK(described.samples == 2);
  CHECK(described.tensors ==
        std::vector<tensor_spec>{{"image", dtype::uint8, {32, 48, 3}, tensor_role::image},
                                 {"label", dtype::int64, {}, tensor_role::data},
                                 {"crop", dtype::int32, {4}, tensor_role::record},
                                 {"flip", dtype::uint8, {}, tensor_role::record}});
  CHECK(dataset->name_of(1) == "dog/2.png");

  sample_memory memory(described);
  load_into(*dataset, 1, memory);
  CHECK(memory.guards_intact());
  std::int64_t label = 0;
  std::memcpy(&label, memory.tensor(1).data(), sizeof label);
  CHECK(label == 1);
  const bytes crop = memory.tensor(2);
  CHECK(number(crop, 0) == 3);  // 64 x 48 -> 64 x 42, centred
  CHECK(number(crop, 1) == 0);
  CHECK(number(crop, 2) == 42);
  CHECK(number(crop, 3) == 64);
  CHECK(memory.tensor(3) == bytes(1, std::byte{0}));
}

TEST_CASE("a sample's bytes depend only on seed, epoch and index, and not on what was loaded before") {
  const temporary_folder folder;
  for (int i = 0; i < 4; ++i) {
    folder.write(fmt::format("a/{}.jpg", i),
                 encode_jpeg(make_raster({200 + 37U * static_cast<unsigned>(i), 150}, 3,
                                         static_cast<std::uint64_t>(i))));
  }
  const config all = settings(folder);
  const auto one = open(all);
  const auto other = open(all);
  sample_memory first(one->describe());
  sample_memory again(one->describe());
  load_into(*one, 2, first, {.seed = 3, .epoch = 1});
  for (const std::uint64_t before : {0ULL, 3ULL, 1ULL})
    load_into(*other, before, again, {.seed = 3, .epoch = 1});
  load_into(*other, 2, again, {.seed = 3, .epoch = 1});
  for (std::size_t i = 0; i < 4; ++i) CHECK(equal(first, again, i));
  load_into(*other, 2, again, {.seed = 3, .epoch = 2});
  CHECK_FALSE(equal(first, again, 2));
}

TEST_CASE("the flip is recorded for the device and leaves the pixels unchanged") {
  const temporary_folder folder;
  folder.write("a/1.jpg", encode_jpeg(make_raster({200, 150})));
  config all = settings(folder);
  all.image.flip = 0;
  const auto straight = open(all);
  all.image.flip = 1;
  const auto flipped = open(all);
  sample_memory one(straight->describe());
  sample_memory two(flipped->describe());
  load_into(*straight, 0, one);
  load_into(*flipped, 0, two);
  CHECK(equal(one, two, 0));
  CHECK(equal(one, two, 2));
  CHECK(one.tensor(3) == bytes(1, std::byte{0}));
  CHECK(two.tensor(3) == bytes(1, std::byte{1}));
}

TEST_CASE("an orientation tag rotates the picture, unless orientation is \"ignore\"") {
  const raster picture = make_raster({60, 40});
  const temporary_folder folder;
  folder.write("a/1.jpg", encode_jpeg(picture));
  folder.write("a/6.jpg", encode_jpeg(picture, {.orientation = 6}));
  config all = settings(folder, augment_kind::none);
  all.image.size = {60, 40};  // the size of the rotated picture: every pixel is copied
  const auto turning = open(all);
  sample_memory turned(turning->describe());
  load_into(*turning, 1, turned);
  all.image.size = {40, 60};
  const auto plain = open(all);
  sample_memory straight(plain->describe());
  load_into(*plain, 0, straight);
  const bytes seen = turned.tensor(0);
  const bytes stored = straight.tensor(0);
  bool as_turned = true;
  for (std::size_t y = 0; y < 60; ++y) {
    for (std::size_t x = 0; x < 40; ++x) {  // 90 degrees clockwise: the left column becomes the top row
      for (std::size_t c = 0; c < 3; ++c)
        as_turned = as_turned && seen[(y * 40 + x) * 3 + c] == stored[((39 - x) * 60 + y) * 3 + c];
    }
  }
  CHECK(as_turned);
  all.image.orientation = orientation_rule::ignore;
  const auto ignoring = open(all);
  load_into(*ignoring, 1, turned = sample_memory(ignoring->describe()));
  CHECK(equal(turned, straight, 0));
}

TEST_CASE("bad files fail with a reason, and the other samples load") {
  const temporary_folder folder;
  const bytes good = encode_jpeg(make_raster({100, 80}));
  folder.write("a/0.jpg", good);
  folder.write("a/1.jpg", "hello");
  folder.write("a/2.jpg", "");
  folder.write("a/3.jpg", bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 2)));
  folder.link("a/4.jpg", "nowhere");
  REQUIRE(::mkfifo(folder.path("a/5.jpg").c_str(), 0600) == 0);
  folder.write("a/6.png", "hello");
  folder.write("a/7.jpg", encode_png(make_raster({30, 20})));  // a PNG named .jpg is a picture
  folder.write("a/8.jpg", good);
  const auto dataset = open(settings(folder));
  CHECK(load_error(*dataset, 0).empty());
  CHECK(load_error(*dataset, 1) == "not a JPEG: starts with 68 65");
  CHECK(load_error(*dataset, 2) == "the file is empty");
  CHECK_FALSE(load_error(*dataset, 3).empty());
  CHECK(load_error(*dataset, 4) == "cannot be opened: No such file or directory");
  CHECK(load_error(*dataset, 5) == "is a FIFO, not a file");
  CHECK(load_error(*dataset, 6) == "not a PNG: starts with 68 65");
  CHECK(load_error(*dataset, 7).empty());
  CHECK(load_error(*dataset, 8).empty());
}

TEST_CASE("a picture beyond max_pixels is refused with the numbers before it is decoded") {
  const temporary_folder folder;
  folder.write("a/1.png", encode_png(make_raster({100, 100})));
  config all = settings(folder);
  all.image.max_pixels = 9999;
  CHECK(load_error(*open(all), 0) == "100 x 100 pixels are more than max_pixels = 9999: not decoded");
  all.image.max_pixels = 10000;
  CHECK(load_error(*open(all), 0).empty());
  bytes bomb = encode_png(make_raster({100, 100}));
  bomb[16] = bomb[20] = std::byte{0x7f};  // two billion by two billion pixels
  folder.write("a/1.png", bomb);
  all.image.max_pixels = 100'000'000;
  CHECK(load_error(*open(all), 0).find("are more than max_pixels = 100000000: not decoded") !=
        std::string::npos);
}

TEST_CASE("a file that changes after the listing affects only its own sample") {
  const temporary_folder folder;
  folder.write("a/1.jpg", encode_jpeg(make_raster({100, 80})));
  folder.write("a/2.jpg", encode_jpeg(make_raster({100, 80})));
  const auto dataset = open(settings(folder));
  ::unlink(folder.path("a/1.jpg").c_str());
  folder.write("a/0.jpg", "a new one");
  CHECK(load_error(*dataset, 0) == "cannot be opened: No such file or directory");
  CHECK(load_error(*dataset, 1).empty());
  CHECK(dataset->describe().samples == 2);
}

TEST_CASE("files whose names are not UTF-8 are loaded, and their names are shown escaped") {
  const temporary_folder folder;
  folder.write("a/\xff.jpg", encode_jpeg(make_raster({10, 10})));
  const auto dataset = open(settings(folder));
  CHECK(dataset->name_of(0) == "a/\\xff.jpg");
  CHECK(load_error(*dataset, 0).empty());
}

TEST_CASE("large pictures are scaled down during decoding, for random crops only") {
  CHECK(dct_denominator({447, 448}, {224, 224}) == 1);
  CHECK(dct_denominator({448, 448}, {224, 224}) == 2);
  CHECK(dct_denominator({10000, 448}, {224, 224}) == 2);
  CHECK(dct_denominator({896, 1000}, {224, 224}) == 4);
  CHECK(dct_denominator({100000, 100000}, {224, 224}) == 8);
}

TEST_CASE("for a decoding device, a row has the file itself, or the pixels of the CPU path") {
  const temporary_folder folder;
  const bytes plain = encode_jpeg(make_raster({100, 80}));
  testing::jpeg_options progressive;
  progressive.progressive = true;
  testing::jpeg_options turned;
  turned.orientation = 6;
  bytes large =
      encode_jpeg(make_raster({1200, 1000}, 3, 9), {.quality = 100, .horizontal = 1, .vertical = 1});
  REQUIRE(large.size() > encoded_row_bytes);
  folder.write("c/1.jpg", plain);
  folder.write("c/2.jpg", encode_jpeg(make_raster({100, 80}), progressive));
  folder.write("c/3.jpg", encode_jpeg(make_raster({100, 80}), turned));
  folder.write("c/4.png", encode_png(make_raster({64, 48})));
  folder.write("c/5.jpg", large);
  bytes cut = plain;
  cut.resize(cut.size() / 2);
  folder.write("c/6.jpg", encode_jpeg(make_raster({1, 1})));
  folder.write("c/7.jpg", encode_jpeg(make_raster({100, 15})));
  folder.write("c/8.jpg", cut);
  config all = settings(folder);
  all.image.decoder = decoder_rule::gpu;
  const auto prepared = prepare_dataset(all, {}, all.image.decoder);
  REQUIRE(prepared);
  const auto mixed = make_dataset(all, prepared->index.get(), all.image.decoder);
  REQUIRE(mixed);
  CHECK((*mixed)->describe() == prepared->description);
  const auto usual = open(all);  // without such a device, whatever the config says
  for (std::uint64_t i = 0; i < 7; ++i) {
    sample_memory given((*mixed)->describe());
    sample_memory wanted(usual->describe());
    load_into(**mixed, i, given);
    load_into(*usual, i, wanted);
    CAPTURE(i);
    encoded_picture header;
    std::memcpy(&header, given.tensor(4).data(), sizeof header);
    CHECK((header.bytes != 0) == (i == 0));
    for (const std::size_t tensor : {1U, 2U, 3U}) CHECK(equal(given, wanted, tensor));
    if (header.bytes == 0) {
      CHECK(equal(given, wanted, 0));
      continue;
    }
    CHECK(header.width == 100);
    CHECK(header.height == 80);
    CHECK(static_cast<std::int32_t>(header.box_top) == number(given.tensor(2), 0));
    CHECK(static_cast<std::int32_t>(header.box_width) == number(given.tensor(2), 3));
    REQUIRE(header.bytes == plain.size());
    CHECK(std::memcmp(given.tensor(4).data() + sizeof header, plain.data(), plain.size()) == 0);
  }
  CHECK(load_error(**mixed, 7).find("remature end") != std::string::npos);
}

TEST_CASE("hybrid gives the device its share, and always the same samples") {
  image_config image;
  image.decoder = decoder_rule::hybrid;
  image.gpu_share = 0.8;
  std::size_t given = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) given += device_may_decode(image, i) ? 1 : 0;
  CHECK(given > 7850);
  CHECK(given < 8150);
  image.gpu_share = 1;
  CHECK(device_may_decode(image, 77));
  image.gpu_share = 0;
  CHECK_FALSE(device_may_decode(image, 77));
  image.decoder = decoder_rule::gpu;
  CHECK(device_may_decode(image, 77));
}
