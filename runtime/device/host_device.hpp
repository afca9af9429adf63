// The host device: device memory is host memory, the copy engine is a thread. Same interface, same order,
// same bits as the CUDA device, so everything can be run and tested without a GPU.
#pragma once

#include "runtime/device/device.hpp"

#include <memory>

namespace penstock::device {

std::unique_ptr<device> make_host_device();

}  // namespace penstock::device
