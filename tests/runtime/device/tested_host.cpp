#include "runtime/device/host_device.hpp"
#include "tests/runtime/device/support.hpp"

namespace penstock::device_test {

std::unique_ptr<device::device> make_tested_device() {
  return device::make_host_device();
}

void fill_device_memory(std::byte* address, std::byte value, std::size_t bytes) {
  std::memset(address, static_cast<int>(value), bytes);
}

}  // namespace penstock::device_test
