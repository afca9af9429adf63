#include "runtime/config/document.hpp"

#include "runtime/base/text.hpp"
#include "runtime/config/syntax_error.hpp"
#include "runtime/config/toml_plus_plus.hpp"
#include "runtime/config/toml_scan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace penstock::config_file {
namespace {

/// Our deepest key has 4 parts (loader.restart.intensity.max). toml++ recurses once per part, so this also
/// bounds its stack.
constexpr std::size_t key_parts_max = 16;
/// A limit, because each section requires another parse of the whole text.
constexpr std::size_t sections_max = 8;

/// Converts toml++'s tree into ours. toml++ counts lines and columns in a text that has `shift` extra bytes
/// before the source.
class converter {
 public:
  converter(const source& text, const source& parsed, std::size_t begin, std::size_t shift)
      : text_(text), parsed_(parsed), begin_(begin), shift_(shift) {}

  [[nodiscard]] node convert(const toml::node& from) const {
    node made;
    made.at = place(from.source());
    if (const auto* as_bool = from.as_boolean()) {
      made.kind = node_kind::boolean;
      made.boolean = as_bool->get();
    } else if (const auto* as_integer = from.as_integer()) {
      made.kind = node_kind::integer;
      made.integer = as_integer->get();
      made.number = static_cast<double>(made.integer);
    } else if (const auto* as_float = from.as_floating_point()) {
      made.kind = node_kind::number;
      made.number = as_float->get();
    } else if (const auto* as_string = from.as_string()) {
      made.kind = node_kind::text;
      made.text = as_string->get();
    } else if (const auto* as_array = from.as_array()) {
      made.kind = node_kind::array;
      for (const toml::node& element : *as_array) made.elements.push_back(convert(element));
    } else if (const auto* as_table = from.as_table()) {
      made.members = members_of(*as_table);
    } else {
      made.kind = node_kind::time;
    }
    return made;
  }

 private:
  [[nodiscard]] std::vector<member> members_of(const toml::table& table) const {
    std::vector<member> members;
    for (const auto& [name, value] : table) {
      member made{std::string(name.str()), place(name.source()), convert(value)};
      // toml++ places a table with a header at the header or at the table's last line. Show its name instead.
      if (!inline_value(value)) made.value.at = made.key;
      members.push_back(std::move(made));
    }
    std::sort(members.begin(), members.end(),
              [](const member& a, const member& b) { return a.key.begin < b.key.begin; });
    return members;
  }

  [[nodiscard]] bool inline_value(const toml::node& value) const {
    if (const auto* table = value.as_table()) return table->is_inline();
    const auto* array = value.as_array();
    if (array == nullptr || array->empty() || !array->is_array_of_tables()) return true;
    return array->get(0)->as_table()->is_inline();
  }

  [[nodiscard]] std::size_t offset(toml::source_position position) const {
    const std::size_t at = parsed_.offset_of({position.line, position.column});
    return begin_ + (at > shift_ ? at - shift_ : 0);
  }

  [[nodiscard]] span place(const toml::source_region& region) const {
    const std::size_t begin = offset(region.begin);
    return {&text_, begin, std::max(begin, offset(region.end))};
  }

  const source& text_;
  const source& parsed_;
  std::size_t begin_;
  std::size_t shift_;
};

void blank(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < std::min(end, text.size()); ++i) {
    if (text[i] != '\n' && text[i] != '\r') text[i] = ' ';
  }
}

std::string shown_path(const std::vector<std::string>& path, std::size_t length) {
  std::string shown;
  for (std::size_t i = 0; i < length; ++i) {
    if (i > 0) shown += '.';
    shown += printable(path[i].substr(0, path[i].find(element_mark)));
  }
  return shown;
}

std::string_view kind_of(key_kind kind) {
  switch (kind) {
    case key_kind::table: return "table";
    case key_kind::table_array: return "list of tables";
    default: return "value";
  }
}

complaint complaint_about(const clash& twice, const source& text) {
  complaint made;
  made.at = {&text, twice.again.begin, twice.again.end};
  // A dotted key creates the tables on its path.
  const bool passed = twice.first.path.size() > twice.again.path.size();
  const std::vector<std::string>& path = passed ? twice.again.path : twice.first.path;
  const std::string whole = shown_path(path, path.size());
  const std::string_view first = passed ? "table" : kind_of(twice.first.kind);
  const std::string_view again = twice.again.path.size() > path.size() ? "table" : kind_of(twice.again.kind);
  std::string label = fmt::format("a {} here", first);
  if (first != again) {
    made.message = fmt::format("'{}' cannot be both a {} and a {}", whole, first, again);
    made.label = fmt::format("a {} here", again);
  } else if (first == "table" && !twice.same_kind && !passed) {
    made.message = fmt::format("the table [{}] cannot be extended from here", whole);
    made.label = "belongs under the table's header";
    label = "the header";
  } else if (first == "table") {
    made.message = fmt::format("the table [{}] is written twice", whole);
    made.label = "written again here";
    label = "first written here";
    made.help = "put all keys of a table under one header";
  } else {
    const std::string name = printable(path.back());
    made.message = path.size() > 1
                       ? fmt::format("'{}' is given twice in [{}]", name, shown_path(path, path.size() - 1))
                       : fmt::format("'{}' is given twice", name);
    made.label = "given again here";
    label = "first given here";
  }
  made.related.push_back(excerpt_of({&text, twice.first.begin, twice.first.end}, std::move(label)));
  return made;
}

std::vector<key_place>::const_iterator next_header(const std::vector<key_place>& keys,
                                                   const key_place& header) {
  const auto behind = std::upper_bound(keys.begin(), keys.end(), header.begin,
                                       [](std::size_t at, const key_place& key) { return at < key.begin; });
  return std::find_if(behind, keys.end(), [](const key_place& key) {
    return key.kind == key_kind::table || key.kind == key_kind::table_array;
  });
}

/// Removes from `text` everything that conflicts with an earlier key. Returns the removed parts that can
/// still be checked: texts of the same length that contain only one table each.
std::vector<std::string> take_out_clashes(std::string& text, const source& from, complaints& found) {
  std::vector<std::string> sections;
  const toml_keys keys = scan_keys(text);
  for (const clash& twice : clashes_of(keys)) {
    if (!found.full()) found.add(complaint_about(twice, from));
    const key_place& again = twice.again;
    std::size_t end = again.statement_end;
    if (again.kind == key_kind::table || again.kind == key_kind::table_array) {
      const auto next = next_header(keys.keys, again);
      end = next == keys.keys.end() ? text.size() : next->statement_begin;
      if (twice.same_kind && again.kind == key_kind::table && sections.size() < sections_max) {
        std::string section = text;
        blank(section, 0, again.statement_begin);
        blank(section, end, section.size());
        sections.push_back(std::move(section));
      }
    }
    blank(text, again.statement_begin, end);
  }
  return sections;
}

/// Empty if the text violates an assumption of toml++.
std::optional<toml::parse_result> parse_toml(std::string_view text) {
  try {
    return toml::parse(text);
  } catch (const assumption_broken&) {
    return std::nullopt;
  }
}

bool parse_tree(const std::string& text, const source& from, document& into, complaints& found) {
  const std::optional<toml::parse_result> parsed = parse_toml(text);
  if (!parsed) {
    const std::size_t at = scan_keys(text).end;
    const bool at_end = at >= text.size();
    found.add(syntax_error(from, at,
                           at_end ? "the file ends too early" : fmt::format("unexpected '{}'", text[at])));
    return false;
  }
  if (!*parsed) {
    const toml::source_position at = parsed->error().source().begin;
    const std::size_t begin = from.offset_of({at.line, at.column});
    found.add(syntax_error(from, begin, parsed->error().description()));
    return false;
  }
  into.trees.push_back(converter(from, from, 0, 0).convert(parsed->table()));
  return true;
}

}  // namespace

const member* node::find(std::string_view name) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const member& m) { return m.name == name; });
  return found == members.end() ? nullptr : &*found;
}

std::string_view name_of(node_kind kind) noexcept {
  switch (kind) {
    case node_kind::boolean: return "a boolean";
    case node_kind::integer: return "a whole number";
    case node_kind::number: return "a number with a fraction";
    case node_kind::text: return "a string";
    case node_kind::time: return "a date or time";
    case node_kind::array: return "an array";
    case node_kind::table: return "a table";
  }
  return "something else";
}

document parse_document(const source& text, complaints& found) {
  document made;
  made.complete = false;
  const std::size_t bad_byte = first_invalid_utf8(text.text());
  const std::size_t bad_key = find_overlong_key(text.text(), key_parts_max);
  if (bad_byte != std::string::npos) {
    const auto byte = static_cast<unsigned char>(text.text()[bad_byte]);
    found.add({.at = {&text, bad_byte, bad_byte + 1},
               .message = "this is not TOML: the file is not UTF-8",
               .label = fmt::format("byte 0x{:02x}", byte)});
  } else if (bad_key != std::string::npos) {
    found.add({.at = {&text, bad_key, bad_key + 1},
               .message = fmt::format("a key with more than {} parts", key_parts_max)});
  } else {
    std::string first = text.text();
    std::vector<std::string> sections = take_out_clashes(first, text, found);
    made.complete = parse_tree(first, text, made, found);
    for (const std::string& section : sections) {
      made.complete = made.complete && parse_tree(section, text, made, found);
    }
  }
  return made;
}

std::optional<node> parse_value(const source& text, std::size_t begin) {
  constexpr std::string_view key = "v = ";
  const std::string_view written = std::string_view(text.text()).substr(begin);
  if (find_overlong_key(written, key_parts_max) != std::string_view::npos) return std::nullopt;
  const source with_key(source_kind::file, {}, std::string(key).append(written), {}, 0);
  const std::optional<toml::parse_result> parsed = parse_toml(with_key.text());
  // With more than one key, the text has a second line, so it is not a single value.
  if (!parsed || !*parsed || parsed->table().size() != 1) return std::nullopt;
  const toml::node* value = parsed->table().get("v");
  if (value == nullptr) return std::nullopt;
  return converter(text, with_key, begin, key.size()).convert(*value);
}

}  // namespace penstock::config_file
