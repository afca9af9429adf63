// [dataset] type = "npy" with several arrays: each is a tensor, and a sample has one row of each. Runs in a worker.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/dataset/arrays/array_index.hpp"

#include <penstock/dataset.hpp>

#include <string>
#include <vector>

namespace penstock {

class arrays_dataset final : public Dataset {
 public:
  /// `path`: the .npz file, or the folder with the files.
  arrays_dataset(array_index index, std::string path);

  dataset_description describe() override { return index_.description(); }
  /// Throws transient_error for storage that may recover, error for a file that has another size than when it was listed.
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "pairs.npz[17]", or the file of the first array.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  [[noreturn]] void fail(std::size_t array, failure why) const;
  void read(std::size_t array, std::uint64_t at, std::span<std::byte> into);

  array_index index_;
  std::string path_;
  std::vector<unique_fd> files_;  ///< of each array, once it is read
};

}  // namespace penstock
