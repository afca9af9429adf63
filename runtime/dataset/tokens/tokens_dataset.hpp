// The tokens dataset: sequences of token ids and the ids that follow them. Runs in a worker; the index says in which
// files they are.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/tokens/open_files.hpp"
#include "runtime/dataset/tokens/packing.hpp"
#include "runtime/dataset/tokens/token_index.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A target that no loss counts: torch's ignore_index.
inline constexpr std::int32_t ignored_target = -100;

/// Tensors: tokens [L] and targets [L], int32, or int64 with a vocab beyond 2^31. With boundaries = "pack" also
/// doc_lengths, int32 [D]: 0, then where each document of the sequence ends, where its unused places end (L), and L
/// in all entries that are left. Files are read with pread, not mapped: a truncated file is an error, not a SIGBUS.
class tokens_dataset final : public Dataset {
 public:
  tokens_dataset(token_index index, const dataset_config& settings);

  static dataset_description describe(const token_index& index, const dataset_config& settings);

  dataset_description describe() override { return describe(index_, settings_); }
  /// Throws transient_error for errors that may be temporary (is_transient), penstock::error otherwise; what() names
  /// the file.
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "part-3.bin[4096]": the file and token at which the sequence begins; of packed documents the sequence's first one.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  /// What of a read is in one file.
  struct part {
    std::uint64_t file;
    std::uint64_t begin;  ///< token within the file
    std::size_t at;       ///< token within the read
    std::size_t tokens;
  };

  template <class Token, class Id>
  void load_as(std::uint64_t sample, const sample_slot& slot);
  template <class Token, class Id>
  void load_packed(std::uint64_t sample, const sample_slot& slot);
  template <class Token>
  std::span<const Token> read(std::uint64_t first, std::size_t count);
  /// tokens[i] = read[i], targets[i] = read[i + 1]
  template <class Token, class Id>
  void convert(std::span<const Token> read, std::span<Id> tokens, std::span<Id> targets);
  template <class Token>
  [[noreturn]] void refuse_id(std::span<const Token> read) const;
  template <class Token, class Id>
  void mask(std::span<const Token> read, std::span<Id> targets);
  /// Of packed documents. Valid until the next call.
  [[nodiscard]] std::span<const packed_piece> pieces_of(std::uint64_t sample) const;
  [[noreturn]] void fail(std::uint64_t file, const failure& why, std::string_view part = "") const;

  token_index index_;
  dataset_config settings_;
  std::uint64_t ids_end_;  ///< ids are below it
  open_token_files files_;
  std::vector<std::byte> raw_;        ///< of the read in progress
  std::vector<part> parts_;           ///< likewise
  std::vector<std::uint64_t> begins_; ///< of documents, while masking

  // The window of documents that was packed last: name_of and load of a sample need the same one.
  mutable std::uint64_t window_ = std::numeric_limits<std::uint64_t>::max();
  mutable std::optional<window_packing> packing_;
  mutable std::vector<std::uint64_t> window_begins_;  ///< first token of each of its documents
};

}  // namespace penstock
