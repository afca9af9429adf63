// Digests of what was delivered: two runs have the same digests exactly when they delivered the same stream.
#pragma once

#include <penstock/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace penstock::sink {

/// XXH3-64 over the sample indices and, for each tensor, its name, dtype, shape and bytes. The views must be
/// in host memory. Every part is preceded by its length, so that no two batches can run together into one.
[[nodiscard]] std::uint64_t batch_digest(std::span<const std::uint64_t> samples,
                                         std::span<const tensor_view> tensors);

}  // namespace penstock::sink
