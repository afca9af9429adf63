// Kernels that tests need: work of a known length or with a known result, and an illegal access.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace penstock::device_test {

/// Multiplies and adds on every multiprocessor for about `cycles` clock cycles; touches no memory.
cudaError_t launch_busy(std::uint64_t cycles, cudaStream_t stream);
/// Writes to an invalid address.
cudaError_t launch_illegal_access(cudaStream_t stream);
/// Copies from[0] to to[0] after `cycles` cycles.
cudaError_t launch_late_read(const std::uint8_t* from, std::uint8_t* to, std::uint64_t cycles,
                             cudaStream_t stream);

/// Adds the sum of the bytes to `to[0]`.
cudaError_t launch_sum(const std::uint8_t* from, std::size_t bytes, unsigned long long* to,
                       cudaStream_t stream);

}  // namespace penstock::device_test
