#include "tools/penstock/dataset/token_text.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <nlohmann/json.hpp>

#include <charconv>

namespace penstock::cli {
namespace {

constexpr std::uint64_t tokenizer_bytes_max = 256 * MiB;
constexpr std::string_view space_block = "\xe2\x96\x81";  // U+2581, SentencePiece's space

/// Removes the next character from UTF-8 text and returns it. Invalid bytes stand for themselves.
std::uint32_t take_character(std::string_view& text) noexcept {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  if (size > text.size()) {
    text.remove_prefix(1);
    return first;
  }
  std::uint32_t character = size == 1 ? first : first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) character = character << 6U | (static_cast<unsigned char>(text[i]) & 0x3fU);
  text.remove_prefix(size);
  return character;
}

/// In GPT-2's alphabet, printable bytes of Latin-1 stand for themselves; the other bytes are letters from U+0100 on, in order.
std::unordered_map<std::uint32_t, char> bytes_of_letters() {
  std::unordered_map<std::uint32_t, char> all;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    all.emplace(itself ? byte : next++, static_cast<char>(byte));
  }
  return all;
}

bool mentions(const nlohmann::json& root, const char* part, std::string_view word) {
  const auto found = root.find(part);
  return found != root.end() && found->dump().find(word) != std::string::npos;
}

}  // namespace

std::string vocabulary::spelled_out(const std::string& entry) const {
  if (spelling_ == spelling::word_pieces) return entry.starts_with("##") ? entry.substr(2) : " " + entry;
  std::string text;
  if (spelling_ == spelling::bytes_as_letters) {
    static const std::unordered_map<std::uint32_t, char> letters = bytes_of_letters();
    for (std::string_view rest(entry); !rest.empty();) {
      const std::string_view before = rest;
      const auto byte = letters.find(take_character(rest));
      if (byte == letters.end())
        text += before.substr(0, before.size() - rest.size());
      else
        text += byte->second;
    }
    return text;
  }
  unsigned byte = 0;  // "<0x0A>"
  if (entry.size() == 6 && entry.starts_with("<0x") && entry.ends_with('>') &&
      std::from_chars(entry.data() + 3, entry.data() + 5, byte, 16).ptr == entry.data() + 5)
    return {static_cast<char>(byte)};
  for (std::string_view rest(entry); !rest.empty();) {
    const bool is_space = rest.starts_with(space_block);
    text += is_space ? ' ' : rest.front();
    rest.remove_prefix(is_space ? space_block.size() : 1);
  }
  return text;
}

result<vocabulary> vocabulary::read(const std::string& path) {
  const auto about = [&](const failure& why) {
    return refuse(why.code, "the tokenizer '{}' {}", printable(path), why.message);
  };
  file_reader reader;
  const auto bytes = reader.read(path, tokenizer_bytes_max);
  if (!bytes) return about(bytes.error());
  const auto root = nlohmann::json::parse(reinterpret_cast<const char*>(bytes->data()),
                                          reinterpret_cast<const char*>(bytes->data() + bytes->size()), nullptr, false);
  const auto none = [&] { return about({errc::config, "is not a tokenizer.json: it has no model with a vocab", 0}); };
  if (!root.is_object() || !root.contains("model") || !root["model"].is_object() || !root["model"].contains("vocab")) return none();
  vocabulary made;
  const nlohmann::json& model = root["model"];
  if (mentions(root, "decoder", "ByteLevel") || mentions(root, "pre_tokenizer", "ByteLevel"))
    made.spelling_ = spelling::bytes_as_letters;
  else if (model.value("type", nlohmann::json()) == "WordPiece")
    made.spelling_ = spelling::word_pieces;
  const nlohmann::json& vocab = model["vocab"];
  if (vocab.is_object()) {  // { "token": id }
    for (const auto& [entry, id] : vocab.items())
      if (id.is_number_integer()) made.entries_[id.get<std::int64_t>()] = made.spelled_out(entry);
  } else if (vocab.is_array()) {  // [["token", score]]
    for (std::size_t id = 0; id < vocab.size(); ++id)
      if (vocab[id].is_array() && !vocab[id].empty() && vocab[id][0].is_string())
        made.entries_[static_cast<std::int64_t>(id)] = made.spelled_out(vocab[id][0].get<std::string>());
  }
  if (made.entries_.empty()) return none();
  if (const auto added = root.find("added_tokens"); added != root.end() && added->is_array())
    for (const nlohmann::json& one : *added)
      if (one.is_object() && one.contains("id") && one["id"].is_number_integer() && one.contains("content") && one["content"].is_string())
        made.entries_[one["id"].get<std::int64_t>()] = one["content"].get<std::string>();
  return made;
}

std::string vocabulary::text_of(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids) {
    const auto found = entries_.find(id);
    text += found == entries_.end() ? fmt::format("<{}>", id) : found->second;
  }
  return text;
}

}  // namespace penstock::cli
