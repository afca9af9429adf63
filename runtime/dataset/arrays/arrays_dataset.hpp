// [dataset] type = "npy" with several arrays: each is a tensor, and a sample has one row of each. Runs in a worker.
#pragma once

#include "runtime/dataset/arrays/array_index.hpp"
#include "runtime/dataset/file_pool.hpp"

#include <penstock/dataset.hpp>

#include <memory>
#include <string>

namespace penstock {

class arrays_dataset final : public Dataset {
 public:
  /// `path`: the .npz file, or the folder with the files. `store`: for URLs, otherwise null.
  arrays_dataset(array_index index, std::string path, std::shared_ptr<object_store> store);

  dataset_description describe() override { return index_.description(); }
  void expect(std::span<const std::uint64_t> samples) override;
  /// Throws transient_error if the storage may recover, and error if a file's size has changed since it was listed.
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "pairs.npz[17]"; in a folder, with the name of the first array's file.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  std::shared_ptr<readable> file(std::size_t array);

  array_index index_;
  std::string path_;
  file_pool files_;  ///< keyed by the number of the array
};

}  // namespace penstock
