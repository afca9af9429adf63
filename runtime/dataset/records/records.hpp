// npy and raw datasets: fixed-size records, stored back to back in files. Runs in a worker; the index lists the files
// and where their records begin.
#pragma once

#include "runtime/dataset/file_pool.hpp"
#include "runtime/dataset/listing/index.hpp"

#include <penstock/dataset.hpp>

#include <memory>
#include <string>
#include <vector>

namespace penstock {

/// One tensor, `data`. Records are read with pread directly into the slot, not through a mapping. A truncated file or
/// failing storage then gives an error code instead of a SIGBUS, which would be blamed on the sample as a crash.
class record_dataset final : public Dataset {
 public:
  /// `path`: as in [dataset]. `store`: for URLs, otherwise null.
  record_dataset(index_view index, const std::string& path, std::shared_ptr<object_store> store = nullptr);

  static dataset_description describe(const index_view& index);

  dataset_description describe() override;
  void expect(std::span<const std::uint64_t> samples) override;
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "part-3.npy[17]": the record within its file.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  struct place {
    std::uint64_t file;
    std::uint64_t record;  ///< within the file
  };
  [[nodiscard]] place place_of(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t offset_of(const place& where) const;
  std::shared_ptr<readable> file(std::uint64_t file);

  index_view index_;
  std::string folder_;
  std::uint64_t record_bytes_ = 0;
  std::vector<std::uint64_t> ends_;  ///< running total of samples, up to and including each file
  file_pool files_;
};

}  // namespace penstock
