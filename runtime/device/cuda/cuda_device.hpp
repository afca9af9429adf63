// The CUDA device: a copy stream that copies slots to the device in FIFO order, a compute stream that
// converts them, a ring of buffers, and events that show completion. Shares the primary context with the embedding
// program; never resets it.
#pragma once

#include "runtime/device/device.hpp"
#include "runtime/device/make_choice.hpp"

#include <memory>
#include <string>

namespace penstock::device {

std::unique_ptr<device> make_cuda_device(const cuda_choice& choice);

/// "NVIDIA H200"; empty if there is no usable GPU. Opening the device then reports why. Creates no context.
[[nodiscard]] std::string name_of_gpu(const cuda_choice& choice);

/// Whether this machine has a driver and a GPU. Creates no context.
[[nodiscard]] bool cuda_is_there();

}  // namespace penstock::device
