// manifest.json, stored next to the .npy files of `--sink npy`: describes the stream and its tensors, and
// keeps batches of different streams out of one folder. docs/formats.md describes it.
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
/// The file with the sample indices of a batch: "e0-b000017.index.npy". Written last.
inline constexpr std::string_view index_name = "index";

struct manifest_tensor {
  tensor_view tensor;  ///< from any batch; its data is not read
  bool record = false;
};

/// JSON with one fact per line, the same for every batch, worker and restart of a stream. First the stream
/// (dataset, sampler, and a digest of [image] and of [gpu] layout, dtype, mean and std), then the tensors:
/// name, role, dtype, shape of a sample (null for an axis that differs from batch to batch).
[[nodiscard]] std::string npy_manifest(const config& settings, std::span<const manifest_tensor> tensors);

/// Creates the folder if it is missing. Refuses (errc::sink) a folder whose manifest belongs to another
/// stream, naming the difference, and one with batches but without a manifest.
result<void> claim_npy_folder(const std::filesystem::path& folder, const config& settings);

/// Writes the manifest atomically; does nothing if it exists. Refuses (errc::sink) a tensor with the name of the index
/// file, two tensors with the same name, and a folder whose manifest lists other tensors.
result<void> write_npy_manifest(const std::filesystem::path& folder, const config& settings,
                                std::span<const manifest_tensor> tensors);

}  // namespace penstock::sink
