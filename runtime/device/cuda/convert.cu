#include "runtime/device/cuda/convert.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace penstock::device {
namespace {

constexpr unsigned threads = 256;

template <class T>
__device__ T rounded(std::uint8_t x, float scale, float shift);
template <>
__device__ std::uint8_t rounded(std::uint8_t x, float, float) {
  return x;
}
template <>
__device__ float rounded(std::uint8_t x, float scale, float shift) {
  return __fmaf_rn(float(x), scale, shift);
}
template <>
__device__ __half rounded(std::uint8_t x, float scale, float shift) {
  return __float2half_rn(__fmaf_rn(float(x), scale, shift));
}
template <>
__device__ __nv_bfloat16 rounded(std::uint8_t x, float scale, float shift) {
  return __float2bfloat16_rn(__fmaf_rn(float(x), scale, shift));
}

// One thread a pixel; neighbours read neighbouring bytes and, plane by plane, write neighbouring elements.
template <class T>
__global__ void __launch_bounds__(threads) convert_kernel(kernel_step s) {
  const std::uint32_t pixels = s.height * s.width;
  const std::uint32_t row = blockIdx.y;
  const std::uint32_t pixel = blockIdx.x * threads + threadIdx.x;
  if (pixel >= pixels) return;
  const std::uint32_t y = pixel / s.width;
  const std::uint32_t x = pixel % s.width;
  const bool mirrored = s.flip_flags != nullptr && s.flip_flags[row] != 0;
  const std::uint32_t source_x = mirrored ? s.width - 1 - x : x;
  const std::size_t elements = std::size_t(pixels) * s.channels;
  const std::uint8_t* from = s.from + row * elements + (std::size_t(y) * s.width + source_x) * s.channels;
  T* to = static_cast<T*>(s.to) + row * elements;
  for (std::uint32_t c = 0; c < s.channels; ++c) {
    const std::size_t at = s.planar ? std::size_t(c) * pixels + pixel : std::size_t(pixel) * s.channels + c;
    to[at] = rounded<T>(from[c], s.scale[c % 3], s.shift[c % 3]);
  }
}

template <class T>
cudaError_t launch(const kernel_step& s, cudaStream_t stream) {
  const std::uint32_t pixels = s.height * s.width;
  const dim3 blocks((pixels + threads - 1) / threads, s.rows);
  convert_kernel<T><<<blocks, threads, 0, stream>>>(s);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_convert(const kernel_step& step, cudaStream_t stream) {
  // A grid has at most 65535 blocks along y.
  constexpr std::uint32_t rows_max = 65535;
  for (std::uint32_t done = 0; done < step.rows; done += rows_max) {
    kernel_step part = step;
    const std::size_t elements = std::size_t(step.height) * step.width * step.channels;
    part.rows = step.rows - done < rows_max ? step.rows - done : rows_max;
    part.from += done * elements;
    if (part.flip_flags != nullptr) part.flip_flags += done;
    cudaError_t status = cudaSuccess;
    switch (step.type) {
      case kernel_type::uint8:
        part.to = static_cast<std::uint8_t*>(step.to) + done * elements;
        status = launch<std::uint8_t>(part, stream);
        break;
      case kernel_type::float16:
        part.to = static_cast<__half*>(step.to) + done * elements;
        status = launch<__half>(part, stream);
        break;
      case kernel_type::bfloat16:
        part.to = static_cast<__nv_bfloat16*>(step.to) + done * elements;
        status = launch<__nv_bfloat16>(part, stream);
        break;
      case kernel_type::float32:
        part.to = static_cast<float*>(step.to) + done * elements;
        status = launch<float>(part, stream);
        break;
    }
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace penstock::device
