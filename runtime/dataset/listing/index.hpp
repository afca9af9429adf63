// The listing of a dataset as one sealed, read-only memfd. The session writes it and all
// workers map it, so a restarted worker need not scan folders again. Read by the datasets.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/listing/listing.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// Writes a listing into a memfd (close-on-exec; sealed against writing, growing, shrinking and further
/// seals). Refuses (errc::out_of_memory, errc::system) with the system's error. Checks RLIMIT_FSIZE first,
/// because exceeding it raises SIGXFSZ.
result<unique_fd> seal_index(const listing& list);

/// A mapped index. Move-only; the descriptor may be closed once it is mapped. All returned views point into the
/// mapping. map() checks all of it, so that later calls are safe whatever the file contains.
class index_view {
 public:
  /// Refuses (errc::protocol) a descriptor that is not sealed, another format or version, and inconsistent numbers.
  /// Reads the whole index once, which takes some ms per million samples.
  static result<index_view> map(int fd);

  [[nodiscard]] dataset_type type() const noexcept;
  [[nodiscard]] std::uint64_t samples() const noexcept;
  [[nodiscard]] std::string_view fingerprint() const noexcept;
  [[nodiscard]] bool of_objects() const noexcept;

  /// Number of files. image-folder: one file per sample, in sample order. npy, raw: each file holds
  /// many samples.
  [[nodiscard]] std::uint64_t files() const noexcept;
  [[nodiscard]] std::uint32_t classes() const noexcept;
  // i < files(), c < classes(), checked.
  [[nodiscard]] std::string_view name(std::uint64_t i) const;  ///< like listing::name_of
  [[nodiscard]] std::string_view tag(std::uint64_t i) const;   ///< an object's version; empty for files
  [[nodiscard]] std::uint32_t class_of(std::uint64_t i) const;
  [[nodiscard]] std::uint64_t size_of_file(std::uint64_t i) const;  ///< npy, raw, objects; 0 for a picture in a file
  [[nodiscard]] std::uint64_t data_at(std::uint64_t i) const;       ///< npy; 0 for the others
  [[nodiscard]] std::string_view class_name(std::uint32_t c) const;

  /// npy, raw: the element type and shape of a sample.
  [[nodiscard]] dtype element() const noexcept;
  [[nodiscard]] std::vector<std::uint32_t> shape() const;

 private:
  struct header;
  struct record_place;
  explicit index_view(mapping memory) noexcept : memory_(std::move(memory)) {}
  [[nodiscard]] std::size_t size() const noexcept { return memory_.bytes().size(); }
  [[nodiscard]] const header& head() const noexcept;
  template <class T>
  [[nodiscard]] std::span<const T> column(std::uint64_t at, std::uint64_t count) const noexcept;
  [[nodiscard]] std::uint64_t texts() const noexcept;
  [[nodiscard]] std::span<const record_place> places() const noexcept;
  [[nodiscard]] std::span<const std::uint32_t> labels() const noexcept;
  [[nodiscard]] std::string_view text(std::uint64_t i) const noexcept;
  [[nodiscard]] result<void> check() const;
  friend result<unique_fd> seal_index(const listing& list);

  mapping memory_;
};

}  // namespace penstock
