// CUDA's codes as failures: what kind of trouble it is, and a sentence with the code.
#pragma once

#include "runtime/base/result.hpp"

#include <cuda_runtime_api.h>

#include <string_view>

namespace penstock::device {

/// The kind of failure that a CUDA code stands for.
[[nodiscard]] errc kind_of(cudaError_t code) noexcept;

/// "what: an illegal memory access was encountered (CUDA error 700)".
[[nodiscard]] failure cuda_failure(cudaError_t code, std::string_view what);

[[nodiscard]] inline tl::unexpected<failure> refuse_cuda(cudaError_t code, std::string_view what) {
  return tl::unexpected(cuda_failure(code, what));
}

/// A GPU that refuses another context because somebody has it: names the compute mode and who that is.
[[nodiscard]] failure taken_failure(cudaError_t code, int ordinal, std::string_view compute_mode,
                                    std::string_view users);

/// 900 to 908: a stream capture (CUDA graph) of the program's and a call forbid each other. Never sticky: the context
/// is as good as before.
[[nodiscard]] bool is_capture_error(cudaError_t code) noexcept;

/// The context is beyond repair: only a new process can use the device again.
[[nodiscard]] bool is_sticky(cudaError_t code) noexcept;

}  // namespace penstock::device
