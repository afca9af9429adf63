#include "runtime/device/host_convert.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace penstock;
using namespace penstock::device;

namespace {

std::size_t bytes_of(dtype type) {
  return type == dtype::uint8 ? 1 : type == dtype::float32 ? 4 : 2;
}

/// Element by element, as the plan requires; `guard` bytes after the result stay unchanged.
constexpr std::size_t guard = 64;

std::vector<std::byte> expected(const convert_step& step, const std::vector<std::byte>& slot,
                                std::uint32_t rows) {
  const std::size_t element = bytes_of(step.type);
  const std::size_t row = std::size_t{step.height} * step.width * step.channels;
  std::vector<std::byte> made(step.to + row * rows * element + guard);
  const auto put = [&](std::size_t at, const void* value) {
    std::memcpy(made.data() + step.to + at * element, value, element);
  };
  for (std::uint32_t r = 0; r < rows; ++r) {
    const bool mirrored = step.flip_flags && slot[*step.flip_flags + r] != std::byte{0};
    for (std::size_t y = 0; y < step.height; ++y) {
      for (std::size_t x = 0; x < step.width; ++x) {
        for (std::size_t c = 0; c < step.channels; ++c) {
          const std::size_t from = (y * step.width + (mirrored ? step.width - 1 - x : x)) * step.channels + c;
          const auto pixel = std::to_integer<std::uint8_t>(slot[step.from + r * row + from]);
          const std::size_t to =
              r * row + (step.layout == image_layout::nchw ? (c * step.height + y) * step.width + x
                                                           : (y * step.width + x) * step.channels + c);
          const float value = normalised(pixel, step.scale[c % 3], step.shift[c % 3]);
          const std::uint16_t half = step.type == dtype::float16 ? to_float16(value) : to_bfloat16(value);
          if (step.type == dtype::uint8)
            put(to, &pixel);
          else if (step.type == dtype::float32)
            put(to, &value);
          else
            put(to, &half);
        }
      }
    }
  }
  return made;
}

std::vector<std::byte> converted(host_conversion convert, const convert_step& step,
                                 const std::vector<std::byte>& slot, std::uint32_t rows, std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  convert(step, slot.data(), made.data(), rows);
  return made;
}

/// Compares both conversions with the formula, on random pixels.
void compare(convert_step step, std::uint32_t rows, std::mt19937& random) {
  const std::size_t pixels = std::size_t{step.height} * step.width * step.channels * rows;
  step.from = 32;
  step.to = 64;
  std::vector<std::byte> slot(step.from + pixels + rows);
  for (std::byte& one : slot) one = static_cast<std::byte>(random());
  step.flip_flags = step.from + pixels;
  for (std::uint32_t r = 0; r < rows; ++r) slot[*step.flip_flags + r] = static_cast<std::byte>(r % 2);
  const auto right = expected(step, slot, rows);
  const bool portable = converted(convert_portably, step, slot, rows, right.size()) == right;
  const bool best = converted(best_conversion(), step, slot, rows, right.size()) == right;
  INFO(step.width << " x " << step.height << " x " << step.channels << ", type "
                  << static_cast<int>(step.type));
  CHECK(portable);
  CHECK(best);
}

constexpr std::array types{dtype::uint8, dtype::float16, dtype::bfloat16, dtype::float32};
constexpr std::array layouts{image_layout::nchw, image_layout::nhwc};

}  // namespace

TEST_CASE("conversions on the host equal the formula bit for bit, for every width, layout and type") {
  std::mt19937 random(1);
  for (const dtype type : types) {
    for (const image_layout layout : layouts) {
      for (const std::uint32_t channels : {1U, 3U}) {
        for (std::uint32_t width = 1; width <= 70; ++width) {
          convert_step step;
          step.width = width;
          step.height = 3;
          step.channels = channels;
          step.layout = layout;
          step.type = type;
          step.scale = {0.0171F, 0.0175F, 0.0174F};
          step.shift = {-2.117F, -2.035F, -1.804F};
          compare(step, 3, random);
        }
      }
    }
  }
}

TEST_CASE("conversions to uint8 can move any number of channels") {
  std::mt19937 random(2);
  for (const image_layout layout : layouts) {
    for (const std::uint32_t channels : {2U, 4U, 7U}) {
      convert_step step;
      step.width = 37;
      step.height = 2;
      step.channels = channels;
      step.layout = layout;
      step.type = dtype::uint8;
      compare(step, 2, random);
    }
  }
}

TEST_CASE("conversions on the host round large, tiny and infinite results as the formula does") {
  std::mt19937 random(3);
  for (const dtype type : {dtype::float16, dtype::bfloat16, dtype::float32}) {
    for (const float scale : {0.0F, 1e-8F, 3e-7F, 300.0F, 1e38F, std::numeric_limits<float>::denorm_min(),
                              std::numeric_limits<float>::infinity()}) {
      for (const float shift : {0.0F, -0.0F, 5.9e-8F, -1e-7F, 65519.0F, -3e38F}) {
        convert_step step;
        step.width = 40;
        step.height = 2;
        step.channels = 3;
        step.type = type;
        step.scale = {scale, -scale, scale / 3};
        step.shift = {shift, shift, -shift};
        compare(step, 2, random);
      }
    }
  }
  for (int i = 0; i < 2000; ++i) {
    std::uniform_real_distribution<float> exponent(-30, 18);
    convert_step step;
    step.width = 24;
    step.height = 1;
    step.channels = 3;
    step.type = types[1 + static_cast<std::size_t>(i) % 3];
    for (std::size_t c = 0; c < 3; ++c) {
      step.scale[c] = std::exp2(exponent(random));
      step.shift[c] = -std::exp2(exponent(random));
    }
    compare(step, 1, random);
  }
}
