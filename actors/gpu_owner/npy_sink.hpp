// `--sink npy`: every batch as files that NumPy reads, exactly as it lies on the device.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/batch.hpp>

#include <filesystem>

namespace penstock::gpu_owner {

class npy_sink {
 public:
  /// Makes the folder if it is missing.
  static result<npy_sink> create(std::filesystem::path folder);

  /// e0-b000000.image.npy, .label.npy, .index.npy (int64 sample indices), and the records: .crop.npy,
  /// .flip.npy.
  result<void> write(const Batch& batch) const;

 private:
  explicit npy_sink(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

}  // namespace penstock::gpu_owner
