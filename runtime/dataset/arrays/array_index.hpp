// The index of several arrays whose first axes count the same samples: a .npz file, or .npy files in one folder. Each
// array is a tensor. The index is one sealed memory file that says where the rows of each array are; deflated arrays
// are inflated into it, once for all workers. Written by the session, mapped by every worker.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"
#include "runtime/storage/object_store.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// Whether [dataset] type = "npy" means several arrays: a .npz file, or members.
[[nodiscard]] bool has_several_arrays(const dataset_config& dataset);

/// The path of the file with an array's values. `path`: [dataset] path. `file`: indexed_array::file.
std::string path_of_array(const std::string& path, std::string_view file);

/// Lists the arrays. Each member of a .npz becomes a tensor with the member's name. With [dataset] members only the
/// listed members are read, under the names given there. In a folder, members name the files. Refuses
/// (errc::dataset, errc::io, errc::out_of_memory; the message names file and member) whatever
/// read_zip_directory, inflate and parse_npy_header refuse; arrays with different numbers of samples; names
/// that no tensor can have; and deflated arrays that would take more than half of the machine's memory.
result<unique_fd> seal_array_index(const dataset_config& dataset, const store_options& options = {});

/// Reads all stored members of a .npz file, and refuses contents with another checksum. seal_array_index checks deflated members only,
/// because workers read single rows of the others.
result<void> check_members(const std::string& path);

/// Whether it is the path of an archive of arrays.
[[nodiscard]] bool is_npz(std::string_view path);

struct indexed_array {
  std::string_view tensor;
  std::string_view file;  ///< relative to [dataset] path; empty: that path itself
  std::uint64_t file_bytes = 0;
  std::string_view tag;       ///< an object's version; otherwise empty
  std::uint64_t data_at = 0;  ///< offset in the file or in the index
  bool in_index = false;
};

/// A mapped index. Move-only. map() checks it completely. The returned views point into the mapping.
class array_index {
 public:
  /// Refuses (errc::protocol) a descriptor that is not sealed, and contents of a different format or version or with
  /// inconsistent numbers. The descriptor may be closed afterwards.
  static result<array_index> map(int fd);

  /// A dataset of type "npy" with a tensor for each array.
  [[nodiscard]] const dataset_description& description() const noexcept { return description_; }
  [[nodiscard]] const std::vector<indexed_array>& arrays() const noexcept { return arrays_; }
  /// The bytes of one row of an array that is in the index. row < samples.
  [[nodiscard]] std::span<const std::byte> row(std::size_t array, std::uint64_t row) const;

 private:
  friend struct array_index_writer;
  struct header;
  struct entry;
  explicit array_index(mapping memory) noexcept : memory_(std::move(memory)) {}
  result<void> read();

  mapping memory_;
  dataset_description description_;
  std::vector<indexed_array> arrays_;
};

}  // namespace penstock
