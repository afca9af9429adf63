#include "runtime/device/cuda/cuda_device.hpp"
#include "tests/runtime/device/support.hpp"

#include <cuda_runtime_api.h>

namespace penstock::device_test {

std::unique_ptr<device::device> make_tested_device() {
  return device::make_cuda_device({});
}

void fill_device_memory(std::byte* address, std::byte value, std::size_t bytes) {
  REQUIRE(cudaMemset(address, static_cast<int>(value), bytes) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace penstock::device_test
