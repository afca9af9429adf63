#include "runtime/dataset/picture/box.hpp"

#include "runtime/dataset/picture/portable_math.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <vector>

using namespace penstock;

namespace {

bool inside(const pixel_box& box, extent picture) {
  return box.width >= 1 && box.height >= 1 && box.left + box.width <= picture.width &&
         box.top + box.height <= picture.height;
}

const std::vector<extent> shapes{{1, 1},     {1, 2},      {2, 1},         {1, 5000},
                                 {5000, 1},  {3, 3},      {17, 23},       {500, 375},
                                 {375, 500}, {1000, 224}, {65500, 65500}, {2147483647, 1}};

}  // namespace

TEST_CASE("the largest box has the result's proportions, rounded down, and is centred") {
  CHECK(largest_box({500, 375}, {224, 224}) == pixel_box{0, 62, 375, 375});
  CHECK(largest_box({375, 500}, {224, 224}) == pixel_box{62, 0, 375, 375});
  CHECK(largest_box({101, 100}, {224, 224}) == pixel_box{0, 0, 100, 100});
  CHECK(largest_box({500, 375}, {2, 1}) == pixel_box{62, 0, 250, 500});
  CHECK(largest_box({500, 375}, {3, 2}) == pixel_box{21, 0, 333, 500});   // 333.3 rounded down, (375 - 333) / 2
  CHECK(largest_box({10, 1000}, {1000, 1}) == pixel_box{499, 0, 1, 10});  // the exact box has 0.01 rows, but a box has at least one
  CHECK(largest_box({1, 1}, {224, 224}) == pixel_box{0, 0, 1, 1});
}

TEST_CASE("the centre crop rounds halves up and is centred like the largest box") {
  CHECK(centre_crop_box({500, 375}, {224, 224}, 0.875) == pixel_box{23, 86, 328, 328});  // 328.125
  CHECK(centre_crop_box({4, 4}, {1, 1}, 0.875) == pixel_box{0, 0, 4, 4});                // 3.5 up
  CHECK(centre_crop_box({1, 1}, {224, 224}, 0.01) == pixel_box{0, 0, 1, 1});
  CHECK(centre_crop_box({500, 375}, {224, 224}, 1.0) == largest_box({500, 375}, {224, 224}));
}

TEST_CASE("random boxes are inside the picture, whatever its shape") {
  for (const extent picture : shapes) {
    for (std::uint64_t sample = 0; sample < 200; ++sample) {
      random_source random(1, 0, sample);
      const pixel_box box = random_resized_box(picture, {0.08, 1.0}, {0.75, 1.3333}, random);
      REQUIRE(inside(box, picture));
    }
  }
}

TEST_CASE("random boxes stay inside for extreme settings too") {
  for (const extent picture : shapes) {
    for (const range_2d scale : {range_2d{0.000001, 0.000001}, range_2d{1.0, 1.0}, range_2d{1.0, 0.1}}) {
      for (const range_2d ratio : {range_2d{0.01, 0.01}, range_2d{100, 100}, range_2d{1.3, 0.7}}) {
        random_source random(2, 0, 0);
        REQUIRE(inside(random_resized_box(picture, scale, ratio, random), picture));
      }
    }
  }
}

TEST_CASE("random boxes keep to the requested area and ratio, and cover the full range of both") {
  double least_area = 1;
  double most_area = 0;
  double least_ratio = 10;
  double most_ratio = 0;
  const extent picture{2000, 1500};
  for (std::uint64_t sample = 0; sample < 2000; ++sample) {
    random_source random(3, 1, sample);
    const pixel_box box = random_resized_box(picture, {0.08, 1.0}, {0.75, 4.0 / 3}, random);
    const double area = static_cast<double>(box.width) * box.height / (2000.0 * 1500.0);
    const double ratio = static_cast<double>(box.width) / box.height;
    least_area = std::min(least_area, area);
    most_area = std::max(most_area, area);
    least_ratio = std::min(least_ratio, ratio);
    most_ratio = std::max(most_ratio, ratio);
  }
  CHECK(least_area == Catch::Approx(0.08).margin(0.005));
  CHECK(most_area > 0.95);
  CHECK(least_ratio == Catch::Approx(0.75).margin(0.01));
  CHECK(most_ratio == Catch::Approx(4.0 / 3).margin(0.01));
}

TEST_CASE("if no try fits a very long picture, its central part with the nearest ratio is used") {
  random_source random(4, 0, 0);
  CHECK(random_resized_box({10000, 100}, {1.0, 1.0}, {0.75, 1.3333}, random) == pixel_box{0, 4933, 100, 133});
  CHECK(random_resized_box({100, 10000}, {1.0, 1.0}, {0.75, 1.3333}, random) == pixel_box{4933, 0, 133, 100});
}

TEST_CASE("only random-resized-crop draws a box, and its first draw decides the flip") {
  image_config config;
  config.augment = augment_kind::none;
  random_source random(5, 0, 0);
  random_source untouched(5, 0, 0);
  CHECK_FALSE(choose_augmentation({500, 375}, config, random).flip);
  config.augment = augment_kind::centre_crop;
  CHECK_FALSE(choose_augmentation({500, 375}, config, random).flip);
  CHECK(random() == untouched());

  config.augment = augment_kind::random_resized_crop;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    random_source first(5, 0, sample);
    random_source again(5, 0, sample);
    const augmentation chosen = choose_augmentation({500, 375}, config, first);
    CHECK(chosen.flip == (again.uniform() < 0.5));
    CHECK(chosen.box == random_resized_box({500, 375}, config.scale, config.ratio, again));
  }
  config.flip = 0;
  CHECK_FALSE(choose_augmentation({500, 375}, config, random).flip);
  config.flip = 1;
  CHECK(choose_augmentation({500, 375}, config, random).flip);
}

TEST_CASE("the boxes of a seed are the same as in every earlier version and on every machine") {
  // Computed independently: torchvision's get_params on a Philox generator in Python.
  image_config config;
  random_source random(1234, 0, 17);
  const augmentation chosen = choose_augmentation({500, 375}, config, random);
  CHECK(chosen.box == pixel_box{37, 11, 200, 161});
  random_source later(1234, 3, 123456789);
  CHECK(choose_augmentation({4032, 3024}, config, later).box == pixel_box{335, 128, 2460, 2687});
}

TEST_CASE("log and exp agree with libm to the last few bits") {
  random_source random(6, 0, 0);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::exp(random.uniform(-9.2, 9.2));
    const double y = random.uniform(-20, 20);
    REQUIRE(std::abs(portable_log(x) - std::log(x)) <= 4e-16 * std::max(1.0, std::abs(std::log(x))));
    REQUIRE(std::abs(portable_exp(y) / std::exp(y) - 1) <= 5e-16);
  }
  CHECK(portable_log(1) == 0);
  CHECK(portable_exp(0) == 1);
}

TEST_CASE("rounding sends halves to the even neighbour") {
  CHECK(round_half_even(0.5) == 0);
  CHECK(round_half_even(1.5) == 2);
  CHECK(round_half_even(2.5) == 2);
  CHECK(round_half_even(2.4999999) == 2);
  CHECK(round_half_even(2.5000001) == 3);
  CHECK(round_half_even(7) == 7);
}
