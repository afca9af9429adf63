// Finds the chosen GPU, and checks that driver and build support it. Used by the CUDA device and the
// yardstick, before any other use of the GPU.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/device.hpp"

#include <string>

namespace penstock::device {

struct selected_gpu {
  int ordinal = 0;
  identity what;
};

/// Selects the device on this thread, which must be the owner's, and creates (or joins) its primary context. Also
/// relaxes the thread's stream captures permanently (cuda_context.hpp). Refuses with errc::device_unavailable (no
/// driver, a driver older than this build's runtime, no such device, with a list of those available), device_busy (with
/// the compute mode and who holds the GPU), or device_image (no kernels for its architecture).
result<selected_gpu> select_gpu(const cuda_choice& choice);

}  // namespace penstock::device
