#include "tests/runtime/device/test_kernels.hpp"

namespace penstock::device_test {
namespace {

__device__ void wait_cycles(std::uint64_t cycles) {
  const long long begin = clock64();
  float x = 1;
  while (static_cast<std::uint64_t>(clock64() - begin) < cycles) {
    for (int i = 0; i < 64; ++i) x = x * 1.0001F + 0.5F;
  }
  if (x == 0) __trap();  // keeps the compiler from removing the arithmetic
}

__global__ void busy(std::uint64_t cycles) {
  wait_cycles(cycles);
}

__global__ void illegal_access(int* where) {
  *where = 1;
}

__global__ void late_read(const volatile std::uint8_t* from, std::uint8_t* to, std::uint64_t cycles) {
  wait_cycles(cycles);
  *to = *from;
}

__global__ void sum(const std::uint8_t* from, std::size_t bytes, unsigned long long* to) {
  unsigned long long mine = 0;
  for (std::size_t i = threadIdx.x; i < bytes; i += blockDim.x) mine += from[i];
  atomicAdd(to, mine);
}

}  // namespace

cudaError_t launch_busy(std::uint64_t cycles, cudaStream_t stream) {
  busy<<<264, 256, 0, stream>>>(cycles);
  return cudaGetLastError();
}

cudaError_t launch_illegal_access(cudaStream_t stream) {
  illegal_access<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(0x10));
  return cudaGetLastError();
}

cudaError_t launch_late_read(const std::uint8_t* from, std::uint8_t* to, std::uint64_t cycles,
                             cudaStream_t stream) {
  late_read<<<1, 1, 0, stream>>>(from, to, cycles);
  return cudaGetLastError();
}

cudaError_t launch_sum(const std::uint8_t* from, std::size_t bytes, unsigned long long* to,
                       cudaStream_t stream) {
  sum<<<1, 256, 0, stream>>>(from, bytes, to);
  return cudaGetLastError();
}

}  // namespace penstock::device_test
