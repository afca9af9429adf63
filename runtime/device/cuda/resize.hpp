// The resize kernel. Used by the JPEG decoder of the CUDA device.
#pragma once

#include "runtime/device/cuda/resize_core.hpp"

#include <cuda_runtime_api.h>

namespace penstock::device {

/// All pictures of the batch, each to its row.
cudaError_t launch_resize(const resize_batch& batch, cudaStream_t stream);

}  // namespace penstock::device
