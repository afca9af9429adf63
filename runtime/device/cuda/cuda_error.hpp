// Converts CUDA codes to failures: a kind and a message with the code.
#pragma once

#include "runtime/base/result.hpp"

#include <cuda_runtime_api.h>

#include <string_view>

namespace penstock::device {

/// The kind of failure for a CUDA code.
[[nodiscard]] errc kind_of(cudaError_t code) noexcept;

/// "what: an illegal memory access was encountered (CUDA error 700)".
[[nodiscard]] failure cuda_failure(cudaError_t code, std::string_view what);

[[nodiscard]] inline tl::unexpected<failure> refuse_cuda(cudaError_t code, std::string_view what) {
  return tl::unexpected(cuda_failure(code, what));
}

/// The failure for a GPU in use that refuses another context: names the compute mode and the process that holds the GPU.
[[nodiscard]] failure taken_failure(cudaError_t code, int ordinal, std::string_view compute_mode,
                                    std::string_view users);

/// Codes 900 to 908 mean that a call conflicts with a stream capture (CUDA graph) of the program. They are never
/// sticky: the context keeps working.
[[nodiscard]] bool is_capture_error(cudaError_t code) noexcept;

/// Whether the context is lost, so that only a new process can use the device again.
[[nodiscard]] bool is_sticky(cudaError_t code) noexcept;

}  // namespace penstock::device
