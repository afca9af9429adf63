// Kernels that tests need: work of a known length, and a crime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::device_test {

/// Multiplies and adds on every multiprocessor for about `cycles` of the clock; touches no memory.
cudaError_t launch_busy(std::uint64_t cycles, cudaStream_t stream);
/// Writes where nothing is.
cudaError_t launch_illegal_access(cudaStream_t stream);
/// `to[0]` becomes what `from[0]` is after so many cycles.
cudaError_t launch_late_read(const std::uint8_t* from, std::uint8_t* to, std::uint64_t cycles,
                             cudaStream_t stream);

}  // namespace penstock::device_test
