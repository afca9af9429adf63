// Converts a step of a plan to the kernel's arguments. Needs no CUDA headers, because tests use it on the host.
#pragma once

#include "runtime/device/cuda/convert_core.hpp"
#include "runtime/device/transfer_plan.hpp"

#include <algorithm>

namespace penstock::device {

inline kernel_type kernel_type_of(dtype type) {
  switch (type) {
    case dtype::uint8: return kernel_type::uint8;
    case dtype::bfloat16: return kernel_type::bfloat16;
    case dtype::float32: return kernel_type::float32;
    default: return kernel_type::float16;
  }
}

inline kernel_step kernel_step_of(const convert_step& step, const std::byte* staging, std::byte* data,
                                  std::uint32_t rows) {
  kernel_step k;
  k.from = reinterpret_cast<const std::uint8_t*>(staging + step.from);
  k.to = data + step.to;
  if (step.flip_flags) k.flip_flags = reinterpret_cast<const std::uint8_t*>(staging + *step.flip_flags);
  k.rows = rows;
  k.height = step.height;
  k.width = step.width;
  k.channels = step.channels;
  k.planar = step.layout == image_layout::nchw;
  k.type = kernel_type_of(step.type);
  std::copy(step.scale.begin(), step.scale.end(), k.scale);
  std::copy(step.shift.begin(), step.shift.end(), k.shift);
  return k;
}

}  // namespace penstock::device
