// The conversion kernels: uint8 NHWC rows to the output type and layout, normalised
// and mirrored. Uses only plain types, because nvcc compiles this header as C++17.
#pragma once

#include "runtime/device/cuda/convert_core.hpp"

#include <cuda_runtime_api.h>

namespace penstock::device {

/// Launches the kernel on the stream.
cudaError_t launch_convert(const kernel_step& step, cudaStream_t stream);

/// Whether the kernels can run on the current device; if not, an error such as cudaErrorNoKernelImageForDevice.
cudaError_t probe_kernels();

}  // namespace penstock::device
