#include "runtime/dataset/picture/resample.hpp"

#include "runtime/dataset/picture/resample_kernels.hpp"
#include "tests/runtime/dataset/fixtures.hpp"

#include <penstock/random.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace penstock;
using testing::make_raster;
using testing::raster;

namespace {

/// Feeds a picture to the resampler as a decoder does: only the needed rows and columns.
std::vector<std::uint8_t> resize(const raster& picture, const pixel_box& box, extent target,
                                 orientation turn = {}) {
  std::vector<std::uint8_t> out(std::size_t{target.width} * target.height * 3);
  resampler resize;
  const double left = box.left;
  const double top = box.top;
  resize.begin({{left, left + box.width, picture.size.width, target.width},
                {top, top + box.height, picture.size.height, target.height},
                turn},
               out);
  std::vector<std::uint8_t> row;
  for (std::uint32_t y = resize.y().source_begin; y < resize.y().source_end; ++y) {
    row.clear();
    for (std::uint32_t x = resize.x().source_begin; x < resize.x().source_end; ++x) {
      const auto* const pixel = picture.pixels.data() + (std::size_t{y} * picture.size.width + x) * 3;
      row.insert(row.end(), {pixel[0], pixel[1], pixel[2], 77});
    }
    row.resize(row.size() + row_padding, 99);
    resize.take_row(row.data());
  }
  REQUIRE(resize.complete());
  return out;
}

/// The definition: a triangle filter over the source, in double, without intermediate rounding.
double exact_pixel(const raster& picture, const pixel_box& box, extent target, std::uint32_t x,
                   std::uint32_t y, unsigned c) {
  const auto weights = [](double begin, double size, std::uint32_t out, std::uint32_t i, std::uint32_t full) {
    const double scale = size / out;
    const double support = std::max(1.0, scale);
    const double centre = begin + (i + 0.5) * scale;
    std::vector<double> all(full);
    double sum = 0;
    for (std::uint32_t k = 0; k < full; ++k)
      sum += all[k] = std::max(0.0, 1 - std::abs(k + 0.5 - centre) / support);
    for (double& weight : all) weight /= sum;
    return all;
  };
  const auto across = weights(box.left, box.width, target.width, x, picture.size.width);
  const auto down = weights(box.top, box.height, target.height, y, picture.size.height);
  double value = 0;
  for (std::uint32_t j = 0; j < picture.size.height; ++j) {
    if (down[j] == 0) continue;
    for (std::uint32_t i = 0; i < picture.size.width; ++i) {
      value += down[j] * across[i] * picture.pixels[(std::size_t{j} * picture.size.width + i) * 3 + c];
    }
  }
  return value;
}

}  // namespace

TEST_CASE("weights add up exactly, are never negative and stay inside the source") {
  random_source random(1, 0, 0);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t full = 1 + random.below(i % 10 == 0 ? 20000 : 600);
    const std::uint32_t size = 1 + random.below(full);
    const std::uint32_t begin = random.below(full - size + 1);
    const unsigned d = 1U << random.below(3);
    axis_weights weights;
    weights.compute({static_cast<double>(begin) / d, static_cast<double>(begin + size) / d,
                     (full + d - 1) / d, 1 + random.below(300)});
    for (std::size_t p = 0; p < weights.first.size(); ++p) {
      std::int32_t sum = 0;
      for (std::uint32_t k = 0; k < weights.taps; ++k) {
        const std::int16_t weight = weights.weights[p * weights.taps + k];
        REQUIRE(weight >= 0);
        REQUIRE((weight == 0 || k < weights.count[p]));
        sum += weight;
      }
      REQUIRE(sum == std::int32_t{1} << weights.shift);
      REQUIRE(weights.count[p] >= 1);
      REQUIRE(weights.count[p] <= weights.taps);
      REQUIRE(weights.first[p] + weights.count[p] <= weights.source_end - weights.source_begin);
      REQUIRE(weights.first[p] + weights.taps <= weights.source_end - weights.source_begin + 3);
    }
    REQUIRE(weights.source_end <= (full + d - 1) / d);
  }
}

TEST_CASE("a resize to the same size is a copy") {
  const raster picture = make_raster({37, 23});
  const bool equal = resize(picture, {0, 0, 23, 37}, {37, 23}) == picture.pixels;
  CHECK(equal);
}

TEST_CASE("an area of one colour stays exactly that colour at every scale") {
  for (const std::uint8_t level : {0, 1, 127, 254, 255}) {
    raster picture{{311, 97}, 3, {}};
    picture.pixels.assign(311 * 97 * 3, level);
    for (const extent target : {extent{1, 1}, extent{7, 300}, extent{224, 224}, extent{311, 97}}) {
      const auto out = resize(picture, {3, 5, 90, 300}, target);
      CHECK(std::ranges::all_of(out, [&](std::uint8_t value) { return value == level; }));
    }
  }
}

TEST_CASE("the result differs from the triangle filter's definition only by rounding") {
  random_source random(2, 0, 0);
  for (int i = 0; i < 40; ++i) {
    const extent size{1 + random.below(90), 1 + random.below(90)};
    const raster picture = make_raster(size, 3, static_cast<std::uint64_t>(i));
    pixel_box box{0, 0, 1 + random.below(size.height), 1 + random.below(size.width)};
    box.top = random.below(size.height - box.height + 1);
    box.left = random.below(size.width - box.width + 1);
    const extent target{1 + random.below(40), 1 + random.below(40)};
    const auto out = resize(picture, box, target);
    for (int probe = 0; probe < 20; ++probe) {
      const std::uint32_t x = random.below(target.width);
      const std::uint32_t y = random.below(target.height);
      const unsigned c = random.below(3);
      const double exact = exact_pixel(picture, box, target, x, y, c);
      // Half a level for each of two roundings, and 0.1 for the 14-bit weights.
      REQUIRE(std::abs(out[(std::size_t{y} * target.width + x) * 3 + c] - exact) <= 1.1);
    }
  }
}

TEST_CASE("a rotated result is the upright result with its pixels moved") {
  const raster picture = make_raster({50, 40});
  const pixel_box stored{4, 6, 31, 33};
  for (unsigned value = 1; value <= 8; ++value) {
    const orientation turn = orientation::from_exif(value);
    const extent straight_size{13, 17};
    const auto straight = resize(picture, stored, straight_size);
    const auto turned = resize(picture, stored, straight_size, turn);
    const extent seen = turn.turned(straight_size);
    bool equal = true;
    for (std::uint32_t y = 0; y < seen.height; ++y) {
      for (std::uint32_t x = 0; x < seen.width; ++x) {
        const pixel_box from = turn.to_stored({y, x, 1, 1}, straight_size);
        for (unsigned c = 0; c < 3; ++c) {
          equal = equal && turned[(std::size_t{y} * seen.width + x) * 3 + c] ==
                               straight[(std::size_t{from.top} * straight_size.width + from.left) * 3 + c];
        }
      }
    }
    CHECK(equal);
  }
}

TEST_CASE("the fast kernels give the same bits as the portable ones") {
  random_source random(3, 0, 0);
  const resample_kernels& fast = best_kernels();
  for (int i = 0; i < 300; ++i) {
    axis_weights weights;
    const std::uint32_t full = 1 + random.below(700);
    weights.compute({0, static_cast<double>(full), full, 1 + random.below(260)});
    const auto pixels = static_cast<std::uint32_t>(weights.first.size());
    std::vector<std::uint8_t> row(std::size_t{full} * 4 + row_padding);
    for (std::uint8_t& value : row)
      value = static_cast<std::uint8_t>(random() % 3 == 0 ? 255 : random() & 0xffU);
    std::vector<std::uint8_t> expected(std::size_t{pixels} * 3);
    std::vector<std::uint8_t> got(expected.size() + resampled_padding);
    portable_kernels.horizontal(row.data(), weights.first.data(), weights.weights.data(), weights.taps,
                                weights.shift, pixels, expected.data());
    fast.horizontal(row.data(), weights.first.data(), weights.weights.data(), weights.taps, weights.shift,
                    pixels, got.data());
    REQUIRE(std::equal(expected.begin(), expected.end(), got.begin()));

    const std::size_t width = 1 + random.below(200);
    std::vector<std::vector<std::uint8_t>> lines(weights.taps,
                                                 std::vector<std::uint8_t>((width + 31) / 32 * 32));
    std::vector<const std::uint8_t*> rows;
    for (auto& line : lines) {
      for (std::uint8_t& value : line) value = static_cast<std::uint8_t>(random() & 0xffU);
      rows.push_back(line.data());
    }
    std::vector<std::uint8_t> expected_line(width + 1, 0xab);
    std::vector<std::uint8_t> got_line(width + 1, 0xab);
    portable_kernels.vertical(rows.data(), weights.weights.data(), weights.taps, weights.shift, width,
                              expected_line.data());
    fast.vertical(rows.data(), weights.weights.data(), weights.taps, weights.shift, width, got_line.data());
    const bool equal = expected_line == got_line;  // including the byte after the row
    REQUIRE(equal);
  }
}

TEST_CASE("one resampler can resize pictures of any size one after another") {
  resampler resize_again;
  for (const extent size : {extent{900, 700}, extent{3, 2}, extent{500, 375}}) {
    const raster picture = make_raster(size);
    const pixel_box whole{0, 0, size.height, size.width};
    std::vector<std::uint8_t> out(32 * 32 * 3);
    resize_again.begin({{0, static_cast<double>(size.width), size.width, 32},
                        {0, static_cast<double>(size.height), size.height, 32},
                        {}},
                       out);
    for (std::uint32_t y = 0; y < size.height; ++y) {
      std::vector<std::uint8_t> row;
      for (std::uint32_t x = 0; x < size.width; ++x) {
        const auto* const pixel = picture.pixels.data() + (std::size_t{y} * size.width + x) * 3;
        row.insert(row.end(), {pixel[0], pixel[1], pixel[2], 0});
      }
      row.resize(row.size() + row_padding);
      resize_again.take_row(row.data());
    }
    CHECK(resize_again.complete());
    const bool equal = out == resize(picture, whole, {32, 32});
    CHECK(equal);
  }
}
