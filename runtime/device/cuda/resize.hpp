// The kernels that follow a decoder: the resize, and the comparison of the reference picture. Used by the JPEG decoder of the
// CUDA device.
#pragma once

#include "runtime/device/cuda/resize_core.hpp"

#include <cuda_runtime_api.h>

namespace penstock::device {

/// Resizes all pictures of the batch, each into its row.
cudaError_t launch_resize(const resize_batch& batch, cudaStream_t stream);

/// Sets `*differ` (page-locked host memory) to 1 if not all bytes are equal. Never sets it to 0. Visible to the host
/// once a later event of the stream is complete.
cudaError_t launch_compare(const std::uint8_t* pixels, const std::uint8_t* expected, std::uint32_t bytes,
                           std::uint32_t* differ, cudaStream_t stream);

}  // namespace penstock::device
