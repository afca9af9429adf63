// `--sink npy`: writes every batch as NumPy files, exactly as it is on the device.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/batch.hpp>
#include <penstock/config.hpp>

#include <filesystem>
#include <utility>

namespace penstock::gpu_owner {

class npy_sink {
 public:
  /// Creates the folder if it is missing. Refuses (errc::sink) a folder with batches of another
  /// stream (one with another batch size, for example), because files of both would end up in it.
  static result<npy_sink> create(std::filesystem::path folder, config settings);

  /// Writes e0-b000000.image.npy, .label.npy, the records (.crop.npy, .flip.npy), and last .index.npy (int64
  /// sample indices): a batch is complete if its index exists. The first batch also writes manifest.json
  /// (runtime/sink/npy_manifest.hpp). Writing a batch again yields the same files. Fails with errc::sink.
  result<void> write(const Batch& batch);

 private:
  npy_sink(std::filesystem::path folder, config settings)
      : folder_(std::move(folder)), settings_(std::move(settings)) {}
  result<void> write_manifest(const Batch& batch) const;

  std::filesystem::path folder_;
  config settings_;
  bool has_manifest_ = false;
};

}  // namespace penstock::gpu_owner
