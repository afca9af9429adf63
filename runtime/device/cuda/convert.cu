#include "runtime/device/cuda/convert.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace penstock::device {
// This namespace has a name, because nvcc would derive an anonymous one's name from the path of this file, and two
// builds would differ.
namespace convert_kernels {

constexpr unsigned threads = 256;

// Uses streaming stores, because results are read later, by other kernels, and need not stay in the cache.
__device__ void store16(void* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  __stcs(static_cast<uint4*>(to), make_uint4(a, b, c, d));
}

struct to_uint8 {
  static constexpr unsigned group = 8;
  using element = std::uint8_t;
  using intermediate = std::uint32_t;
  static __device__ intermediate prepare(std::uint32_t x, float, float) { return x; }
  static __device__ void store1(element* to, intermediate x) { *to = static_cast<element>(x); }
  static __device__ void store_group(element* to, const intermediate (&x)[group]) {
    const unsigned low = x[0] | x[1] << 8 | x[2] << 16 | x[3] << 24;
    const unsigned high = x[4] | x[5] << 8 | x[6] << 16 | x[7] << 24;
    __stcs(reinterpret_cast<uint2*>(to), make_uint2(low, high));
  }
};

// y = fma(x, scale, shift), rounded once; then rounded to nearest even in the output type (rule S5).
struct normalising {
  using intermediate = float;
  static __device__ float prepare(std::uint32_t x, float scale, float shift) {
    return __fmaf_rn(as_float(x), scale, shift);
  }
};

struct to_float32 : normalising {
  static constexpr unsigned group = 4;
  using element = float;
  static __device__ void store1(element* to, float y) { *to = y; }
  static __device__ void store_group(element* to, const float (&y)[group]) {
    __stcs(reinterpret_cast<float4*>(to), make_float4(y[0], y[1], y[2], y[3]));
  }
};

struct to_half : normalising {
  static constexpr unsigned group = 8;
  using element = std::uint16_t;
  static __device__ unsigned pair(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
  }
  static __device__ void store1(element* to, float y) { *to = __half_as_ushort(__float2half_rn(y)); }
  static __device__ void store_group(element* to, const float (&y)[group]) {
    store16(to, pair(y[0], y[1]), pair(y[2], y[3]), pair(y[4], y[5]), pair(y[6], y[7]));
  }
};

struct to_bfloat : normalising {
  static constexpr unsigned group = 8;
  using element = std::uint16_t;
  static __device__ unsigned pair(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
  }
  static __device__ void store1(element* to, float y) { *to = __bfloat16_as_ushort(__float2bfloat16_rn(y)); }
  static __device__ void store_group(element* to, const float (&y)[group]) {
    store16(to, pair(y[0], y[1]), pair(y[2], y[3]), pair(y[4], y[5]), pair(y[6], y[7]));
  }
};

template <class Rounding, unsigned Channels, bool Planar>
__global__ void __launch_bounds__(threads) group_kernel(const kernel_step s, std::uint32_t groups) {
  const std::uint32_t group = blockIdx.x * threads + threadIdx.x;
  if (group < groups) convert_group<Rounding, Channels, Planar>(s, group);
}

template <class Rounding, unsigned Channels>
__global__ void __launch_bounds__(threads) pixel_kernel(const kernel_step s, std::uint32_t pixels) {
  const std::uint32_t pixel = blockIdx.x * threads + threadIdx.x;
  if (pixel < pixels) convert_pixel<Rounding, Channels>(s, pixel);
}

template <class Rounding>
cudaError_t launch(const kernel_step& s, cudaStream_t stream) {
  const std::uint32_t pixels = s.rows * pixels_of(s);
  if (pixels == 0 || s.channels == 0) return cudaSuccess;
  if (!goes_in_groups(s)) {
    const unsigned blocks = (pixels + threads - 1) / threads;
    if (s.channels == 3) {
      pixel_kernel<Rounding, 3><<<blocks, threads, 0, stream>>>(s, pixels);
    } else if (s.channels == 1) {
      pixel_kernel<Rounding, 1><<<blocks, threads, 0, stream>>>(s, pixels);
    } else {
      pixel_kernel<Rounding, 0><<<blocks, threads, 0, stream>>>(s, pixels);
    }
    return cudaGetLastError();
  }
  const std::uint32_t groups = pixels / Rounding::group;
  const unsigned blocks = (groups + threads - 1) / threads;
  if (s.channels == 1) {
    // With one channel both layouts are identical.
    group_kernel<Rounding, 1, true><<<blocks, threads, 0, stream>>>(s, groups);
  } else if (s.planar) {
    group_kernel<Rounding, 3, true><<<blocks, threads, 0, stream>>>(s, groups);
  } else {
    group_kernel<Rounding, 3, false><<<blocks, threads, 0, stream>>>(s, groups);
  }
  return cudaGetLastError();
}

template <class Rounding>
cudaError_t launch_all(kernel_step rest, cudaStream_t stream) {
  while (rest.rows > 0) {
    kernel_step part = rest;
    part.rows = rows_of_launch(rest);
    if (const auto status = launch<Rounding>(part, stream); status != cudaSuccess) return status;
    rest = after_rows(rest, part.rows, sizeof(typename Rounding::element));
  }
  return cudaSuccess;
}

}  // namespace convert_kernels

using namespace convert_kernels;

cudaError_t launch_convert(const kernel_step& step, cudaStream_t stream) {
  switch (step.type) {
    case kernel_type::uint8: return launch_all<to_uint8>(step, stream);
    case kernel_type::float16: return launch_all<to_half>(step, stream);
    case kernel_type::bfloat16: return launch_all<to_bfloat>(step, stream);
    case kernel_type::float32: return launch_all<to_float32>(step, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t probe_kernels() {
  cudaFuncAttributes facts{};
  return cudaFuncGetAttributes(&facts, reinterpret_cast<const void*>(&pixel_kernel<to_uint8, 0>));
}

}  // namespace penstock::device
