// The .idx file next to a Megatron .bin: where its documents begin. Every number is checked before it is used. Used by
// the listing of token files and by the tokens dataset.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/storage/readable.hpp"

#include <penstock/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace penstock {

/// Layout of an .idx file, little-endian and without gaps:
///
///   "MMIDIDX\0\0"
///   u64 version                   1
///   u8  element                   1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 and 7 floating point, 8 uint16
///   u64 sequences
///   u64 documents                 one more than there are documents
///   i32 lengths[sequences]        in tokens
///   i64 pointers[sequences]       where each sequence begins in the .bin, in bytes
///   i64 document_begins[documents]  the first sequence of each document; at the end: sequences
class megatron_index {
 public:
  /// Reads all of the requested bytes, or refuses.
  using byte_reader = std::function<result<void>(std::uint64_t at, std::span<std::byte> into)>;

  /// Reads the header and both ends of each table, in O(1). Refuses (errc::dataset, one sentence without the file's
  /// name) a different format, version or element, tables that do not fill the file, and ends that do not match the size of
  /// the .bin. Also refuses what `read` refuses.
  static result<megatron_index> open(byte_reader read, std::uint64_t index_bytes, std::uint64_t data_bytes);

  [[nodiscard]] dtype element() const noexcept { return element_; }
  [[nodiscard]] std::uint64_t documents() const noexcept { return documents_; }
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }

  /// The first token of a document; tokens() for document documents(). document <= documents().
  [[nodiscard]] result<std::uint64_t> begin_of(std::uint64_t document) const;
  /// The positions between tokens `after` and `before` (both excluded) where documents begin, in order, each once.
  /// Reads O(log documents) numbers, plus the results.
  result<void> begins_between(std::uint64_t after, std::uint64_t before,
                              std::vector<std::uint64_t>& begins) const;
  /// Appends the length of every document, in tokens. Reads the whole file. Refuses sequences that do not follow each
  /// other without a gap, and documents of 2^32 tokens or more.
  result<void> all_lengths(std::vector<std::uint32_t>& lengths) const;

 private:
  explicit megatron_index(byte_reader read) noexcept : read_(std::move(read)) {}
  result<void> check_ends() const;
  template <class T>
  [[nodiscard]] result<T> number_at(std::uint64_t at) const;
  [[nodiscard]] result<std::uint64_t> token_of(std::int64_t pointer) const;

  byte_reader read_;
  dtype element_ = dtype::uint8;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t pointers_at_ = 0;
  std::uint64_t documents_at_ = 0;
};

/// Reads from the file, which must outlive the reader. Caches the beginning, so that a small index of an object takes one request.
megatron_index::byte_reader reader_of(readable& file);

}  // namespace penstock
