// The index of all shards of a tar dataset: where each member of each sample is. The file is written once, then mapped
// read-only by every session and worker that uses the shards. index_cache.hpp finds or writes it.
#pragma once

#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/tar/record_codec.hpp"
#include "runtime/dataset/tar/shard_index.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Writes the index of these shards, in this order, to an empty file. Does not sync the file: readers verify the
/// checksum. Refuses (errc::io) what the system refuses.
result<void> write_tar_index(int fd, std::span<const shard_index> shards);

struct indexed_shard {
  std::string_view name;
  std::uint64_t bytes = 0;       ///< size of the archive
  std::uint64_t file_bytes = 0;  ///< smaller than `bytes` if the shard is compressed
  std::int64_t modified_ns = 0;
  std::string_view tag;  ///< an object's version; empty for files
  std::uint64_t first_sample = 0;
  std::uint64_t samples = 0;
  std::uint64_t members = 0;
  bool has_end_marker = true;
  std::uint64_t bytes_after_end = 0;
};

struct indexed_extension {
  std::string_view text;  ///< in lower case
  std::uint64_t members = 0;
  std::uint64_t longest = 0;
};

struct indexed_member {
  std::string_view extension;
  indexed_kind kind = indexed_kind::file;
  std::uint64_t header_at = 0;
  std::uint64_t bytes = 0;
  std::optional<std::int64_t> number{};  ///< set by read_all(): the whole number in the contents of a .cls and the like
  [[nodiscard]] std::uint64_t data_at() const noexcept { return header_at + tar_block; }
};

struct indexed_sample {
  std::uint64_t shard = 0;
  std::string_view key;
  std::vector<indexed_member> members;  ///< in the order of the shard
};

/// A mapped index. Move-only. The returned views point into the mapping. map() checks the tables of shards, extensions
/// and frames; records are checked when they are read, so an index of 10^7
/// samples opens without delay. All calls are safe whatever the file contains.
class tar_index {
 public:
  /// Refuses (errc::protocol) a different format or version, and inconsistent tables. The descriptor may be closed
  /// afterwards. The file must not be written to while it is mapped; penstock replaces it with a new file.
  static result<tar_index> map(int fd);

  /// Reads the whole index, which takes some ms per million samples.
  [[nodiscard]] bool checksum_holds() const noexcept;

  [[nodiscard]] std::uint64_t samples() const noexcept;
  [[nodiscard]] std::uint64_t shards() const noexcept;
  [[nodiscard]] std::string_view fingerprint() const noexcept;  ///< 32 hex digits
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return memory_.bytes().size(); }

  // Checked: i < shards(), sample < samples().
  [[nodiscard]] indexed_shard shard(std::uint64_t i) const;
  [[nodiscard]] std::vector<indexed_extension> extensions(std::uint64_t shard) const;
  /// Empty if the shard is not compressed.
  [[nodiscard]] std::span<const zstd_frame> frames(std::uint64_t shard) const;
  [[nodiscard]] std::uint64_t shard_of(std::uint64_t sample) const;
  /// Refuses (errc::dataset) an impossible record, which shows that the index is damaged.
  result<void> read(std::uint64_t sample, indexed_sample& to) const;
  /// Reads all samples in order, with the numbers in their members. Refuses what read() refuses.
  result<void> read_all(const std::function<void(std::uint64_t sample, const indexed_sample&)>& use) const;
  /// Empty if the record is impossible.
  [[nodiscard]] std::string_view key(std::uint64_t sample) const;

 private:
  struct header;
  struct shard_entry;
  struct extension_entry;
  friend result<void> write_tar_index(int fd, std::span<const shard_index> shards);

  explicit tar_index(mapping memory) noexcept : memory_(std::move(memory)) {}
  [[nodiscard]] const header& head() const noexcept;
  [[nodiscard]] std::span<const shard_entry> shard_table() const noexcept;
  [[nodiscard]] std::span<const extension_entry> extension_table() const noexcept;
  [[nodiscard]] std::span<const zstd_frame> frame_table() const noexcept;
  [[nodiscard]] std::string_view text(std::uint64_t at, std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::string_view record_at(std::uint64_t shard, std::uint64_t sample) const noexcept;
  [[nodiscard]] std::string_view numbers_of(std::uint64_t shard) const noexcept;
  [[nodiscard]] bool tables_fit() const noexcept;

  mapping memory_;
};

}  // namespace penstock
