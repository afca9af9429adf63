// The host device: device memory is host memory, the copy engine is a thread. It has the interface of the CUDA
// device and gives the same results in the same order, so everything can be run and tested without a GPU.
#pragma once

#include "runtime/device/device.hpp"

#include <memory>

namespace penstock::device {

std::unique_ptr<device> make_host_device();

}  // namespace penstock::device
