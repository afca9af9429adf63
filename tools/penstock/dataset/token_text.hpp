// Ids of tokens as text, through the vocabulary of a tokenizer file (tokenizer.json of Hugging Face). Used by `penstock preview`.
#pragma once

#include "runtime/base/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

namespace penstock::cli {

class vocabulary {
 public:
  /// Refuses (errc::io, errc::config) a file that cannot be read, is not JSON, or has no vocabulary, and names it.
  static result<vocabulary> read(const std::string& path);

  /// The entries of the ids, one after the other, as UTF-8. Undoes how the tokenizer writes bytes and spaces, but does not apply
  /// its rules for spaces and clean-up: the text may differ in spaces from what the tokenizer would decode. An unknown id
  /// becomes "<1234>".
  [[nodiscard]] std::string text_of(std::span<const std::int64_t> ids) const;

 private:
  /// How an entry of the vocabulary writes bytes and spaces.
  enum class spelling : std::uint8_t { bytes_as_letters, spaces_as_blocks, word_pieces };

  [[nodiscard]] std::string spelled_out(const std::string& entry) const;

  std::unordered_map<std::int64_t, std::string> entries_;  ///< spelled out
  spelling spelling_ = spelling::spaces_as_blocks;
};

}  // namespace penstock::cli
