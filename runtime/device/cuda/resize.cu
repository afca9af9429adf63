#include "runtime/device/cuda/resize.hpp"

namespace penstock::device {
// This namespace has a name, because nvcc would derive an anonymous one's name from the path of this file, and two
// builds would differ.
namespace resize_kernels {

constexpr unsigned threads = 256;

__global__ void __launch_bounds__(threads) resize_kernel(const __grid_constant__ resize_batch batch) {
  const std::uint32_t index = blockIdx.x * threads + threadIdx.x;
  if (index < batch.width * batch.height) resize_pixel(batch, blockIdx.y, index);
}

__global__ void __launch_bounds__(threads)
    compare_kernel(const std::uint8_t* pixels, const std::uint8_t* expected, std::uint32_t bytes,
                   std::uint32_t* differ) {
  bool same = true;
  for (std::uint32_t i = threadIdx.x; i < bytes; i += threads) same = same && pixels[i] == expected[i];
  if (!same) *static_cast<volatile std::uint32_t*>(differ) = 1;
}

}  // namespace resize_kernels

cudaError_t launch_resize(const resize_batch& batch, cudaStream_t stream) {
  using namespace resize_kernels;
  if (batch.pictures == 0) return cudaSuccess;
  const dim3 blocks((batch.width * batch.height + threads - 1) / threads, batch.pictures);
  resize_kernel<<<blocks, threads, 0, stream>>>(batch);
  return cudaGetLastError();
}

cudaError_t launch_compare(const std::uint8_t* pixels, const std::uint8_t* expected, std::uint32_t bytes,
                           std::uint32_t* differ, cudaStream_t stream) {
  using namespace resize_kernels;
  compare_kernel<<<1, threads, 0, stream>>>(pixels, expected, bytes, differ);
  return cudaGetLastError();
}

}  // namespace penstock::device
