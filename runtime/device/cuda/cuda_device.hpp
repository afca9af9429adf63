// The CUDA device: one copy stream on which slots are copied to the device first in, first out, one compute
// stream on which they are converted, a ring of buffers, events for completion. Shares the primary context
// with the program that embeds us; never resets it.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/make_choice.hpp"

#include <memory>

namespace penstock::device {

std::unique_ptr<device> make_cuda_device(const cuda_choice& choice);

/// Whether this machine has a driver and a GPU. No context is created.
[[nodiscard]] bool cuda_is_there();

}  // namespace penstock::device
