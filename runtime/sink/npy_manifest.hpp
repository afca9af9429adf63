// manifest.json beside the .npy files of `--sink npy`: which stream they hold, and what their tensors are. It
// keeps the batches of two different streams from being mixed in one folder. docs/formats.md describes it.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>
#include <penstock/tensor.hpp>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::sink {

inline constexpr std::string_view manifest_name = "manifest.json";
/// The file of a batch in which its sample indices are: "e0-b000017.index.npy". Written last.
inline constexpr std::string_view index_name = "index";

struct manifest_tensor {
  tensor_view tensor;  ///< of any batch; the data is not looked at
  bool record = false;
};

/// JSON with one fact a line, the same for every batch, worker and restart of a stream. First what the stream
/// is (dataset, sampler, and a digest of [image] and of [gpu] layout, dtype, mean and std), then the tensors:
/// name, role, dtype, shape of a sample (null for an axis that differs from batch to batch).
[[nodiscard]] std::string npy_manifest(const config& settings, std::span<const manifest_tensor> tensors);

/// Makes the folder if it is missing. Refuses (errc::sink) a folder whose manifest is that of another stream,
/// saying how they differ, and one with batches but without a manifest.
result<void> claim_npy_folder(const std::filesystem::path& folder, const config& settings);

/// Writes the manifest, whole or not at all; does nothing if it is there. Refuses (errc::sink) a tensor that
/// is called like the index or twice, and a manifest with other tensors.
result<void> write_npy_manifest(const std::filesystem::path& folder, const config& settings,
                                std::span<const manifest_tensor> tensors);

}  // namespace penstock::sink
