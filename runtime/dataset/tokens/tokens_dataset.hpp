// The tokens dataset: sequences of token ids, and for each id the next one as its target. Runs in a worker; the index
// says which files contain them.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/tokens/open_files.hpp"
#include "runtime/dataset/tokens/packing.hpp"
#include "runtime/dataset/tokens/token_index.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A target that losses ignore, like torch's ignore_index.
inline constexpr std::int32_t ignored_target = -100;

/// Tensors: tokens [L] and targets [L], int32, or int64 with a vocab beyond 2^31. With boundaries = "pack" also doc_lengths,
/// int32 [D]: 0, then where each document of the sequence ends. All remaining entries are L, the end of the
/// unused places. Files are read with pread, not mapped, so a truncated file gives an error instead of a SIGBUS.
class tokens_dataset final : public Dataset {
 public:
  /// `store`: for URLs, otherwise null.
  tokens_dataset(token_index index, const dataset_config& settings, std::shared_ptr<object_store> store);

  static dataset_description describe(const token_index& index, const dataset_config& settings);

  dataset_description describe() override { return describe(index_, settings_); }
  void expect(std::span<const std::uint64_t> samples) override;
  /// Throws transient_error for errors that may be temporary (is_transient), otherwise penstock::error. what() names the file.
  void load(const sample_request& request, const sample_slot& slot) override;
  /// "part-3.bin[4096]": the file and token at which the sequence (if packed, its first document) begins.
  [[nodiscard]] std::string name_of(std::uint64_t index) const override;

 private:
  /// The part of a read that is in one file.
  struct part {
    std::uint64_t file;
    std::uint64_t begin;  ///< its first token, counted within the file
    std::size_t at;       ///< the same, counted within the read
    std::size_t tokens;
  };

  /// Caches the window of documents that was packed last, because consecutive calls usually need the same one.
  class packed_window {
   public:
    struct of_sample {
      std::span<const packed_piece> pieces;
      std::span<const std::uint64_t> begins;  ///< first token of each document of the window
    };
    /// Valid until the next call.
    of_sample pieces_of(const token_index& index, std::uint64_t sample, std::uint32_t length);

   private:
    std::uint64_t window_ = std::numeric_limits<std::uint64_t>::max();
    std::optional<window_packing> packing_;
    std::vector<std::uint64_t> begins_;
  };

  /// Calls use() with the part in each file that has some of these tokens.
  template <class Use>
  void for_each_part(std::uint64_t first, std::size_t count, const Use& use) const;
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
  [[noreturn]] void fail(std::uint64_t file, const failure& why, std::string_view part = "") const;

  token_index index_;
  dataset_config settings_;
  std::uint64_t ids_end_;  ///< every id is below this
  open_token_files files_;
  std::uint64_t read_file_ = 0;       ///< the file that was read last
  std::shared_ptr<readable> opened_;  ///< that file; null: no file was read
  std::vector<std::byte> raw_;        ///< bytes of the read in progress
  std::vector<part> parts_;           ///< its parts in the files
  std::vector<std::uint64_t> begins_; ///< where documents begin; used by mask()
  mutable packed_window packed_;      ///< used by load() and name_of()
  packed_window ahead_;               ///< used by expect(), which runs on another thread
};

}  // namespace penstock
