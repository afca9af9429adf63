// Finds the keys of a TOML text without parsing its values. toml++ stops at the first duplicate key and does
// not say where the first one is; this finds all duplicates, so that parsing can continue without them. Pure.
// Accepts a superset of TOML; toml++ checks everything else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::config_file {

enum class key_kind : std::uint8_t { value, inline_value, table, table_array };

/// A key that is written without escapes cannot contain it.
inline constexpr char element_mark = '\x01';

/// One key in the text: `name` in `name = 1`, `c` in `[a.b.c]`.
struct key_place {
  /// The path from the root. An element of an array is the array's name, element_mark and the index.
  std::vector<std::string> path;
  key_kind kind = key_kind::value;
  std::uint32_t dotted = 1;  ///< the number of parts in the key as written
  std::size_t begin = 0;     ///< the last part of the key, quotes included
  std::size_t end = 0;
  /// The whole `a.b = value` or `[a.b]`; for inline values with the comma before.
  std::size_t statement_begin = 0;
  std::size_t statement_end = 0;
};

struct toml_keys {
  std::vector<key_place> keys;  ///< in the order of the text, up to the first part that is not understood
  bool complete = true;
  std::size_t end = 0;  ///< where the scan ended: the end of the text, or the part not understood
};

toml_keys scan_keys(std::string_view text);

/// A key that conflicts with an earlier one.
struct clash {
  key_place first;
  key_place again;
  bool same_kind = true;  ///< true: the same key twice; false: a table and a value, or a table and an array of tables
};

std::vector<clash> clashes_of(const toml_keys& found);

/// Where the first dotted key gets more than `limit` parts; npos if none does. toml++ makes a nested table of
/// each part and destroys them recursively.
std::size_t find_overlong_key(std::string_view text, std::size_t limit);

}  // namespace penstock::config_file
