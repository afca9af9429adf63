// Digests of delivered batches. Two runs have the same digests if and only if they delivered the same stream.
#pragma once

#include <penstock/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>

namespace penstock::sink {

/// XXH3-64 over the sample indices and, for each tensor, its name, dtype, shape and bytes. The views must be
/// in host memory. Every part is preceded by its length, so that different batches never hash the same input.
[[nodiscard]] std::uint64_t batch_digest(std::span<const std::uint64_t> samples,
                                         std::span<const tensor_view> tensors);

}  // namespace penstock::sink
