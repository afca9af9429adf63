// A TOML text as a tree of values with their positions. The only place that uses toml++; no exception leaves
// it. Pure.
#pragma once

#include "runtime/config/source.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

struct member;

enum class node_kind : std::uint8_t { boolean, integer, number, text, time, array, table };

struct node {
  node_kind kind = node_kind::table;
  span at;  ///< the value as written; for a [table], its name in the header
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;            ///< also set for an integer
  std::string text;             ///< a string's content, escapes resolved
  std::vector<node> elements;   ///< elements of an array
  std::vector<member> members;  ///< keys of a table, in the order of the text

  [[nodiscard]] const member* find(std::string_view name) const;
};

struct member {
  std::string name;
  span key;
  node value;
};

/// "a string", "an array", ...: for "must be a size, not ...".
std::string_view name_of(node_kind kind) noexcept;

struct document {
  /// Usually one tree. A table that is written twice adds
  /// another tree, so that its contents are checked, too.
  std::vector<node> trees;
  bool complete = true;  ///< false: a syntax error ended it
};

/// Adds a syntax error (at most one, because toml++ stops there) and every duplicate to `found`.
document parse_document(const source& text, complaints& found);

/// Parses `text` from `begin` on as one TOML value; empty if it is not one.
std::optional<node> parse_value(const source& text, std::size_t begin);

/// The offset, within a string as it is written (quotes included), of each byte of its value and of its end.
/// In text without quotes, every byte stands for itself.
std::vector<std::size_t> literal_offsets(std::string_view written);

}  // namespace penstock::config_file
