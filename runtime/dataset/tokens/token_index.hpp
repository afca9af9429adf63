// The index of a tokens dataset, as one sealed memory file: its files and, with boundaries = "pack", its documents. For
// objects, boundaries = "mask" also adds the documents, because finding them in a remote index would take many requests
// for each sample. Written by the session, mapped by every worker.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/tokens/token_files.hpp"

#include <penstock/config.hpp>
#include <penstock/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

struct sealed_token_index {
  unique_fd file;
  std::vector<std::string> notices;
};

/// Lists the files and counts the sequences; reads all documents for boundaries = "pack". Refuses (errc::dataset,
/// errc::config, errc::io) what list_token_files and lengths_of_documents refuse; boundaries other than "ignore" if a
/// file has no index and there is no eos; and fewer tokens than one sequence needs.
result<sealed_token_index> seal_token_index(const dataset_config& dataset, const store_options& options = {});

struct indexed_token_file {
  std::string_view name;  ///< `name` and `tag` are those of token_file
  std::string_view tag;
  std::uint64_t bytes = 0;
  std::uint64_t data_at = 0;
  std::uint64_t index_bytes = 0;  ///< 0: the file has no index
  std::uint64_t first_token = 0;  ///< number of its first token in the whole dataset
  std::uint64_t tokens = 0;
};

/// One window of documents. If documents are packed, those of a window are packed together (packing.hpp).
struct indexed_window {
  std::uint64_t first_token = 0;
  std::uint64_t first_sequence = 0;
  std::span<const std::uint32_t> lengths;  ///< length of each of its documents, in tokens
};

/// A mapped index. Move-only. The returned views point into the mapping. map() checks all tables but the lengths.
class token_index {
 public:
  /// Refuses (errc::protocol) a descriptor that is not sealed, another format or version, and inconsistent tables. The
  /// descriptor may be closed afterwards.
  static result<token_index> map(int fd);

  [[nodiscard]] std::uint64_t samples() const noexcept;
  [[nodiscard]] std::uint64_t tokens() const noexcept;
  [[nodiscard]] dtype element() const noexcept;
  [[nodiscard]] std::string_view fingerprint() const noexcept;
  /// The number of entries of doc_lengths; 0 unless documents are packed.
  [[nodiscard]] std::uint32_t entries_of_lengths() const noexcept;
  [[nodiscard]] std::uint64_t files() const noexcept;

  // Checked: file < files(), token < tokens(), sample < samples() of packed documents.
  [[nodiscard]] indexed_token_file file(std::uint64_t file) const;
  [[nodiscard]] std::uint64_t file_of(std::uint64_t token) const;
  [[nodiscard]] std::uint64_t window_of(std::uint64_t sample) const;
  [[nodiscard]] indexed_window window(std::uint64_t window) const;

  [[nodiscard]] bool has_documents() const noexcept;
  /// Where documents begin after token `after` and before token `before`, in order. Call it only if has_documents().
  void begins_between(std::uint64_t after, std::uint64_t before, std::vector<std::uint64_t>& begins) const;

 private:
  struct header;
  struct file_entry;
  struct window_entry;
  friend struct token_index_writer;

  explicit token_index(mapping memory) noexcept : memory_(std::move(memory)) {}
  [[nodiscard]] const header& head() const noexcept;
  [[nodiscard]] bool tables_fit() const noexcept;
  [[nodiscard]] std::span<const file_entry> file_table() const noexcept;
  [[nodiscard]] std::span<const window_entry> window_table() const noexcept;
  [[nodiscard]] const std::uint32_t* lengths() const noexcept;

  mapping memory_;
};

}  // namespace penstock
