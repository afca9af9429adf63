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
  /// Refuses (errc::io, errc::config), naming the file, one that cannot be read, is no JSON, or has no vocabulary.
  static result<vocabulary> read(const std::string& path);

  /// What the ids stand for, one after the other, as UTF-8. The tokenizer's own rules for spaces and clean-up are not
  /// applied, apart from how it writes bytes and spaces: what it would decode may differ in spaces. "<1234>" for an id that it
  /// does not have.
  [[nodiscard]] std::string text_of(std::span<const std::int64_t> ids) const;

 private:
  /// How an entry of the vocabulary writes bytes and spaces.
  enum class spelling : std::uint8_t { bytes_as_letters, spaces_as_blocks, word_pieces };

  [[nodiscard]] std::string spelled_out(const std::string& entry) const;

  std::unordered_map<std::int64_t, std::string> entries_;  ///< spelled out
  spelling spelling_ = spelling::spaces_as_blocks;
};

}  // namespace penstock::cli
