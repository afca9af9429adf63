#include "runtime/device/transfer_plan.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

using namespace penstock;
using namespace penstock::device;

namespace {

batch_layout photo_layout(std::uint32_t rows) {
  return lay_out(std::vector<tensor_spec>{{"image", dtype::uint8, {4, 6, 3}, tensor_role::image},
                                          {"label", dtype::int64, {}, tensor_role::data},
                                          {"crop", dtype::int32, {4}, tensor_role::record},
                                          {"flip", dtype::uint8, {}, tensor_role::record}},
                 rows)
      .value();
}

double from_float16(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = (bits >> 10U) & 0x1fU;
  const int mantissa = bits & 0x3ffU;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace

TEST_CASE("records stay on the host, labels are copied, images are converted") {
  const auto plan =
      plan_transfer(photo_layout(8), {image_layout::nchw, dtype::float16, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}});
  REQUIRE(plan);
  REQUIRE(plan->tensors.size() == 2);
  CHECK(plan->tensors[0].name == "image");
  CHECK(plan->tensors[0].shape == std::vector<std::uint32_t>{3, 4, 6});
  CHECK(plan->tensors[0].row_bytes == 144);
  CHECK(plan->tensors[1].name == "label");
  CHECK(plan->copies.size() == 1);
  REQUIRE(plan->conversions.size() == 1);
  CHECK(plan->conversions[0].flip_flags == photo_layout(8).tensors[3].offset);
  CHECK(plan->staged);
}

TEST_CASE("a uint8 NHWC image without flip flags needs no conversion") {
  const auto slot =
      lay_out(std::vector<tensor_spec>{{"image", dtype::uint8, {4, 6, 3}, tensor_role::image}}, 2).value();
  const auto plan = plan_transfer(slot, {image_layout::nhwc, dtype::uint8, {}, {1, 1, 1}});
  REQUIRE(plan);
  CHECK(plan->conversions.empty());
  CHECK_FALSE(plan->staged);
}

TEST_CASE("an image with two channels cannot be normalised with three means") {
  const auto slot =
      lay_out(std::vector<tensor_spec>{{"image", dtype::uint8, {4, 6, 2}, tensor_role::image}}, 2).value();
  CHECK(plan_transfer(slot, {}).error().message ==
        "image tensor 'image' has 2 channels, but mean and std need 1 or 3");
  CHECK(plan_transfer(slot, {image_layout::nchw, dtype::uint8, {}, {1, 1, 1}}));
}

TEST_CASE("float16 rounds to nearest, ties to even, over the whole range") {
  std::uint32_t bits = 1;
  for (int i = 0; i < 200'000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const std::uint16_t half = to_float16(value);
    if (std::abs(value) >= 65520.0F) {
      REQUIRE(std::isinf(from_float16(half)));
      continue;
    }
    const double error = std::abs(from_float16(half) - value);
    for (const int step : {-1, 1}) {
      const auto neighbour = static_cast<std::uint16_t>(half + step);
      if ((neighbour & 0x7c00U) == 0x7c00U || ((neighbour ^ half) & 0x8000U) != 0) continue;
      const double other = std::abs(from_float16(neighbour) - value);
      REQUIRE(error <= other);
      if (error == other) REQUIRE((half & 1U) == 0);
    }
  }
  CHECK(to_float16(65504.0F) == 0x7bff);
  CHECK(to_float16(65520.0F) == 0x7c00);
  CHECK(to_float16(std::ldexp(1.0F, -25)) == 0);
  CHECK(to_float16(std::ldexp(3.0F, -25)) == 2);
  CHECK(std::isnan(from_float16(to_float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("bfloat16 is the upper half of a float, rounded to nearest even") {
  CHECK(to_bfloat16(1.0F) == 0x3f80);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f80'8000U)) == 0x3f80);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f81'8000U)) == 0x3f82);
  CHECK(to_bfloat16(std::bit_cast<float>(0x3f80'8001U)) == 0x3f81);
  CHECK(to_bfloat16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK((to_bfloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7fffU) > 0x7f80U);
}

TEST_CASE("a batch of variable size takes its first dimension from its longest row, up to the maximum") {
  const auto layout = lay_out(
      std::vector<tensor_spec>{
          {"tokens", dtype::uint16, {10, 2}, tensor_role::data, length_rule::batch_maximum},
          {"label", dtype::int64, {}, tensor_role::data}},
      4);
  REQUIRE(layout);
  const auto plan = plan_transfer(*layout, {});
  REQUIRE(plan);
  std::vector<std::byte> slot(layout->bytes);
  const auto extents_with = [&](std::vector<std::int64_t> lengths) {
    std::ranges::copy(std::as_bytes(std::span(lengths)),
                      slot.begin() + static_cast<std::ptrdiff_t>(layout->tensors[2].offset));
    return plan->extents_of(slot, static_cast<std::uint32_t>(lengths.size()));
  };
  CHECK(extents_with({3, 7, 1}) == batch_extents{7, 0, 0});
  CHECK(plan->row_shape(0, extents_with({3, 7, 1})) == std::vector<std::uint32_t>{7, 2});
  CHECK(plan->row_bytes(0, extents_with({3, 7, 1})) == 28);
  CHECK(plan->payload_bytes(3, extents_with({3, 7, 1})) == 3 * (28 + 8 + 8));
  CHECK(extents_with({}) == batch_extents{0, 0, 0});
  // Values that a broken worker may leave there.
  CHECK(extents_with({1'000'000'000'000, -5}) == batch_extents{10, 0, 0});
}

TEST_CASE("plans without variable dimensions have no extents") {
  const auto plan = plan_transfer(photo_layout(8), {});
  REQUIRE(plan);
  const std::vector<std::byte> slot(plan->slot.bytes);
  CHECK(plan->extents_of(slot, 8).empty());
  CHECK(plan->payload_bytes(8, {}) == plan->slot.payload_bytes(8));
}
