#include "tools/penstock/dataset/value_counter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace penstock::inspected {
namespace {

double half(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1fU;
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const double fraction = bits & 0x3ffU;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double number_at(dtype type, const std::byte* at) {
  switch (type) {
    case dtype::uint8: return read_as<std::uint8_t>(at);
    case dtype::int8: return read_as<std::int8_t>(at);
    case dtype::uint16: return read_as<std::uint16_t>(at);
    case dtype::int16: return read_as<std::int16_t>(at);
    case dtype::uint32: return read_as<std::uint32_t>(at);
    case dtype::int32: return read_as<std::int32_t>(at);
    case dtype::uint64: return static_cast<double>(read_as<std::uint64_t>(at));
    case dtype::int64: return static_cast<double>(read_as<std::int64_t>(at));
    case dtype::float16: return half(read_as<std::uint16_t>(at));
    case dtype::bfloat16: return std::bit_cast<float>(std::uint32_t{read_as<std::uint16_t>(at)} << 16U);
    case dtype::float32: return read_as<float>(at);
    case dtype::float64: return read_as<double>(at);
  }
  return 0;
}

}  // namespace

std::string value_counter::take(std::span<const std::byte> sample) {
  const std::size_t size = size_of(type_);
  std::uint64_t odd = 0;
  bool zero = true;
  for (std::size_t at = 0; at + size <= sample.size(); at += size) {
    const double value = number_at(type_, sample.data() + at);
    zero &= value == 0;
    if (!std::isfinite(value)) {
      ++odd;
      continue;
    }
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
    sum_ += value;
    ++count_;
  }
  not_finite_ += odd;
  ++samples_;
  if (odd > 0) return fmt::format("{} of its values {} infinite or NaN", odd, odd == 1 ? "is" : "are");
  return zero ? "all of its values are 0" : "";
}

value_summary value_counter::summary() const {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (count_ == 0) return {samples_, none, none, none, not_finite_};
  return {samples_, least_, most_, sum_ / static_cast<double>(count_), not_finite_};
}

}  // namespace penstock::inspected
