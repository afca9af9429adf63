// The conversion kernel: uint8 NHWC rows to the output type and layout, normalised and mirrored. Plain types,
// since nvcc compiles it as C++17.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace penstock::device {

enum class kernel_type { uint8, float16, bfloat16, float32 };

struct kernel_step {
  const std::uint8_t* from = nullptr;  // rows of height * width * channels bytes
  void* to = nullptr;
  const std::uint8_t* flip_flags = nullptr;  // one a row, or null
  std::uint32_t rows = 0;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t channels = 0;
  bool planar = false;
  kernel_type type = kernel_type::float16;
  float scale[3] = {};
  float shift[3] = {};
};

/// Puts the kernel on the stream.
cudaError_t launch_convert(const kernel_step& step, cudaStream_t stream);

}  // namespace penstock::device
