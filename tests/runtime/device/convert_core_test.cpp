// The conversion kernels' arithmetic, run on the host: the same functions that the kernels call, in a loop,
// against the host device. Tests on a GPU then only need to check the compiler and the launches.
#include "runtime/device/cuda/convert_core.hpp"

#include "runtime/device/cuda/kernel_step.hpp"
#include "runtime/device/host_device.hpp"
#include "tests/runtime/device/support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace penstock;
using namespace penstock::device;
using namespace penstock::device_test;

namespace {

// Like the kernels' rounding policies, which use intrinsics.
struct rounding_base {
  static constexpr unsigned group = 8;
  using intermediate = float;
  static float prepare(std::uint32_t x, float scale, float shift) {
    return std::fma(as_float(x), scale, shift);
  }
};
struct to_float32 : rounding_base {
  static constexpr unsigned group = 4;
  using element = float;
  static void store1(element* to, float y) { *to = y; }
  static void store_group(element* to, const float (&y)[group]) { std::copy(y, y + group, to); }
};
template <std::uint16_t (*Round)(float) noexcept>
struct to_16_bits : rounding_base {
  using element = std::uint16_t;
  static void store1(element* to, float y) { *to = Round(y); }
  static void store_group(element* to, const float (&y)[group]) { std::transform(y, y + group, to, Round); }
};
struct to_uint8 {
  static constexpr unsigned group = 8;
  using element = std::uint8_t;
  using intermediate = std::uint32_t;
  static std::uint32_t prepare(std::uint32_t x, float, float) { return x; }
  static void store1(element* to, std::uint32_t x) { *to = static_cast<element>(x); }
  static void store_group(element* to, const std::uint32_t (&x)[group]) { std::copy(x, x + group, to); }
};

/// Like launch_convert: groups where they fit, otherwise single pixels.
template <class Rounding>
void convert(const kernel_step& s) {
  const std::uint32_t pixels = s.rows * pixels_of(s);
  if (!goes_in_groups(s)) {
    for (std::uint32_t i = 0; i < pixels; ++i) {
      if (s.channels == 3) {
        convert_pixel<Rounding, 3>(s, i);
      } else if (s.channels == 1) {
        convert_pixel<Rounding, 1>(s, i);
      } else {
        convert_pixel<Rounding, 0>(s, i);
      }
    }
    return;
  }
  for (std::uint32_t g = 0; g < pixels / Rounding::group; ++g) {
    if (s.channels == 1) {
      convert_group<Rounding, 1, true>(s, g);
    } else if (s.planar) {
      convert_group<Rounding, 3, true>(s, g);
    } else {
      convert_group<Rounding, 3, false>(s, g);
    }
  }
}

void convert(const kernel_step& s) {
  switch (s.type) {
    case kernel_type::uint8: return convert<to_uint8>(s);
    case kernel_type::float16: return convert<to_16_bits<to_float16>>(s);
    case kernel_type::bfloat16: return convert<to_16_bits<to_bfloat16>>(s);
    case kernel_type::float32: return convert<to_float32>(s);
  }
}

}  // namespace

TEST_CASE("the kernels' arithmetic writes the host device's bytes, for random shapes, and no byte outside") {
  const auto seed = GENERATE(range(0U, 150U));
  const random_case one(seed);
  CAPTURE(seed, one.text());
  const auto host = make_host_device();
  const auto expected = one.run(*host);

  aligned_bytes data(one.plan.buffer_bytes);
  aligned_bytes staging(one.plan.slot.bytes);
  std::ranges::fill(data.span(), poison);
  std::ranges::copy(one.slot_bytes(), staging.span().begin());
  for (const convert_step& step : one.plan.conversions)
    convert(kernel_step_of(step, staging.span().data(), data.span().data(), one.rows));
  for (const copy_step& step : one.plan.copies) {
    std::memcpy(data.span().data() + step.to, staging.span().data() + step.from, step.row_bytes * one.rows);
  }
  REQUIRE(std::ranges::equal(data.span(), expected));
}

TEST_CASE("every byte is converted to the float of its value") {
  for (std::uint32_t x = 0; x < 256; ++x) REQUIRE(as_float(x) == static_cast<float>(x));
}

TEST_CASE("more rows than a launch's indices can count are split into several launches without gaps") {
  kernel_step s;
  s.height = 16384;
  s.width = 16384;
  s.channels = 3;
  s.rows = 19;
  std::uint32_t done = 0;
  std::vector<std::uint8_t> flags(s.rows);
  s.flip_flags = flags.data();
  for (; s.rows > 0; ++done) {
    const std::uint32_t rows = rows_of_launch(s);
    REQUIRE(rows == std::min(8U, s.rows));
    const std::uint8_t* const flags_before = s.flip_flags;
    s = after_rows(s, rows, 2);
    CHECK(s.flip_flags == flags_before + rows);
  }
  CHECK(done == 3);
}
