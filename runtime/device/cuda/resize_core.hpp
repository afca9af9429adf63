// The resize after decoding on the device: the source pixels and weights of each pixel of the result. Compiled by nvcc
// into the kernel (resize.cu) and by the host compiler into the tests. Plain C++17, no CUDA header.
#pragma once

#include "runtime/device/cuda/convert_core.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace penstock::device {

struct resize_picture {
  const std::uint8_t* from = nullptr;  // interleaved RGB, rows of 3 * width bytes
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t box_top = 0;
  std::uint32_t box_left = 0;
  std::uint32_t box_height = 0;
  std::uint32_t box_width = 0;
  std::uint32_t row = 0;  // row of the batch
};

// The most pictures of one launch. This many descriptions fit in a kernel's arguments, so nothing has to be copied
// first.
constexpr unsigned resize_pictures_max = 64;
struct resize_batch {
  std::uint8_t* to = nullptr;  // rows of height * width * 3 bytes
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t pictures = 0;
  resize_picture picture[resize_pictures_max] = {};
};
static_assert(sizeof(resize_batch) <= 4096);

/// `count` source pixels from `first` on. The weight of pixel k is 1 - |offset + k| / support. This is Pillow's
/// triangle, as in axis_weights: it reaches as many source pixels to each side as the reduction factor. It can
/// extend beyond the box but not beyond the picture.
struct resize_axis {
  std::uint32_t first;
  std::uint32_t count;
  float offset;
  float slope;
};

PENSTOCK_BOTH resize_axis axis_of(std::uint32_t begin, std::uint32_t length, std::uint32_t full,
                                  std::uint32_t out, std::uint32_t i) {
  const double scale = static_cast<double>(length) / out;
  const double support = scale > 1.0 ? scale : 1.0;
  const double centre = begin + (i + 0.5) * scale;
  double low = floor(centre - support + 0.5);
  double high = floor(centre + support + 0.5);
  if (low < 0.0) low = 0.0;
  if (high > full) high = full;
  return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(high - low),
          static_cast<float>(low - centre + 0.5), static_cast<float>(1.0 / support)};
}

PENSTOCK_BOTH float weight_of(const resize_axis& axis, std::uint32_t k) {
  const float weight = 1.0F - fabsf(axis.offset + static_cast<float>(k)) * axis.slope;
  return weight > 0.0F ? weight : 0.0F;
}

PENSTOCK_BOTH std::uint8_t as_level(float value) {
  const float rounded = value + 0.5F;
  if (rounded <= 0.0F) return 0;
  return rounded >= 255.0F ? 255 : static_cast<std::uint8_t>(rounded);
}

/// Computes pixel number `index` of the result, counted row by row.
PENSTOCK_BOTH void resize_pixel(const resize_batch& batch, unsigned number, std::uint32_t index) {
  const resize_picture& p = batch.picture[number];
  const resize_axis x = axis_of(p.box_left, p.box_width, p.width, batch.width, index % batch.width);
  const resize_axis y = axis_of(p.box_top, p.box_height, p.height, batch.height, index / batch.width);
  float sum[3] = {};
  float weights = 0.0F;
  for (std::uint32_t j = 0; j < y.count; ++j) {
    const float wy = weight_of(y, j);
    const std::uint8_t* from = p.from + (std::size_t{y.first + j} * p.width + x.first) * 3;
    for (std::uint32_t i = 0; i < x.count; ++i, from += 3) {
      const float w = wy * weight_of(x, i);
      sum[0] += w * as_float(from[0]);
      sum[1] += w * as_float(from[1]);
      sum[2] += w * as_float(from[2]);
      weights += w;
    }
  }
  std::uint8_t* const to = batch.to + (std::size_t{p.row} * batch.height * batch.width + index) * 3;
  for (unsigned c = 0; c < 3; ++c) to[c] = as_level(sum[c] / weights);
}

}  // namespace penstock::device
