// npy and raw datasets: fixed-size records, stored back to back in files. Runs in a worker; the index has the
// files and the offsets of their records.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/dataset/listing/index.hpp"

#include <penstock/dataset.hpp>

#include <array>
#include <string>
#include <vector>

namespace penstock {

/// One tensor, `data`. Records are read with pread directly into the slot, not through a mapping: a truncated
/// file or failing storage is then an error code, not a SIGBUS that would be blamed on the sample as a
/// crash.
class record_dataset final : public Dataset {
 public:
  /// `path`: the file itself, or the folder that the names in the index are relative to.
  record_dataset(index_view index, std::string path);

  static dataset_description describe(const index_view& index);

  dataset_description describe() override;
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "part-3.npy[17]": the record within its file.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  struct place {
    std::uint64_t file;
    std::uint64_t record;  ///< within the file
  };
  [[nodiscard]] place place_of(std::uint64_t index) const;
  int open(std::uint64_t file);

  // Descriptors are kept open for later samples, up to a limit: a folder may have more files than a process
  // may open.
  struct kept_file {
    std::uint64_t file = ~std::uint64_t{0};
    unique_fd fd;
  };

  index_view index_;
  std::string path_;
  bool is_folder_ = false;
  std::uint64_t record_bytes_ = 0;
  std::vector<std::uint64_t> ends_;  ///< cumulative number of samples, including each file
  std::array<kept_file, 64> kept_;
};

}  // namespace penstock
