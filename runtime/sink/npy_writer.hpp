// Writes tensors as .npy files (NumPy format 1.0, C order, little endian).
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/tensor.hpp>

#include <filesystem>
#include <string>

namespace penstock::sink {

/// The header before the data: magic, version, padded dictionary. bfloat16, which NumPy does not have, is
/// written as "<u2".
[[nodiscard]] std::string npy_header(dtype type, const std::vector<std::uint64_t>& shape);

/// Writes under a temporary name, syncs and renames: a file with the final name is complete, and writing it
/// again gives the same file. Refuses with errc::sink, naming the file; a full disk leaves no file.
result<void> write_npy(const std::filesystem::path& file, const tensor_view& tensor);

}  // namespace penstock::sink
