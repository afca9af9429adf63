// The last step on the device: from a batch's raw bytes in device memory to its buffer. Used by the CUDA device and by
// its JPEG decoder.
#pragma once

#include "runtime/device/transfer_plan.hpp"

#include <cuda_runtime_api.h>

namespace penstock::device {

/// Queues the copies and conversions of `plan` for a batch of `rows` rows.
cudaError_t queue_conversions(const transfer_plan& plan, const std::byte* staging, std::byte* data,
                              std::uint32_t rows, const batch_extents& extents, cudaStream_t stream);

}  // namespace penstock::device
