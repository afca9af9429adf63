#include "runtime/config/syntax_error.hpp"

#include "runtime/base/text.hpp"
#include "runtime/config/foreign_names.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/toml_scan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>

namespace penstock::config_file {
namespace {

constexpr auto npos = std::string_view::npos;

/// toml++'s message, split in two.
struct parts {
  std::string_view where;  ///< "string", "key-value pair"; empty: unknown
  std::string_view what;
};

parts parts_of(std::string_view description) {
  constexpr std::string_view prefix = "Error while parsing ";
  const std::size_t colon = description.find(": ");
  if (!description.starts_with(prefix) || colon == npos) return {{}, description};
  return {description.substr(prefix.size(), colon - prefix.size()), description.substr(colon + 2)};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string sentence(const parts& said) {
  if (said.what.find("could not determine value type") != npos) return "there is no value here";
  std::string what = printable(said.what);
  what = replaced(std::move(what), "saw '\\n'", "found the end of the line");
  what = replaced(std::move(what), "encountered end-of-file", "the file ends too early");
  what = replaced(std::move(what), ", saw ", ", found ");
  if (said.where.empty() || said.where == "root table") return what;
  const bool vowel = std::string_view("aeiou").find(said.where.front()) != npos;
  return fmt::format("in {} {}, {}", vowel ? "an" : "a", said.where, what);
}

/// The part of the value at this place that is on this line: from after '=', ',' or '[' to the next delimiter.
std::optional<span> value_around(const source& text, std::size_t offset) {
  const std::string_view all = text.text();
  const std::size_t line_begin = offset == 0 ? 0 : all.rfind('\n', offset - 1) + 1;
  std::size_t begin = offset;
  while (begin > line_begin && std::string_view("=,[").find(all[begin - 1]) == npos) --begin;
  const std::string_view before = all.substr(line_begin, begin - line_begin);
  // Before '=' there is no value, and between quotes there are no delimiters.
  if (before.find('=') == npos || std::count(before.begin(), before.end(), '"') % 2 != 0) return std::nullopt;
  while (begin < all.size() && (all[begin] == ' ' || all[begin] == '\t')) ++begin;
  std::size_t end = std::min(all.find_first_of(",]}#\r\n", begin), all.size());
  while (end > begin && (all[end - 1] == ' ' || all[end - 1] == '\t')) --end;
  if (end == begin) return std::nullopt;
  return span{&text, begin, end};
}

/// The key whose value is at the place; null if it is unknown.
const key_info* key_at(const toml_keys& keys, std::size_t offset) {
  const key_place* nearest = nullptr;
  for (const key_place& one : keys.keys) {
    const bool has_value = one.kind == key_kind::value || one.kind == key_kind::inline_value;
    if (has_value && one.begin <= offset) nearest = &one;
  }
  if (nearest == nullptr) return nullptr;
  std::string path;
  for (const std::string& part : nearest->path) path = join(path, part);
  const key_info* const key = key_table::get().find(path);
  // For an entry of a table with arbitrary names, use the table's key.
  return key != nullptr ? key : key_table::get().find(path.substr(0, path.rfind('.')));
}

/// Recognises the values of other languages: True, yes, None. If this is one, completes the complaint and returns true.
bool is_value_of_another_language(std::string_view written, const key_info* key, complaint& made) {
  const bool wants_text = key != nullptr && key->form.element == scalar::text;
  if (wants_text) return false;
  const std::string_view boolean = foreign_boolean(written);
  const bool wants_boolean = key != nullptr && key->form.element == scalar::boolean;
  const bool other_case = boolean.size() == written.size() && boolean.size() >= 4;
  if (!boolean.empty() && (wants_boolean || other_case)) {
    made.message = "this is not TOML, which writes true and false in lower case";
    made.label = fmt::format("did you mean {}?", boolean);
    return true;
  }
  if (!is_foreign_null(written)) return false;
  const bool optional = key != nullptr && key->form.count == arity::optional;
  made.message = "this is not TOML, which has no null value";
  made.label = optional ? fmt::format("did you mean \"{}\"?", key->form.absent) : "leave the key out";
  return true;
}

bool looks_like_text(std::string_view value) {
  constexpr std::array<std::string_view, 4> words{"true", "false", "inf", "nan"};
  const auto first = static_cast<unsigned char>(value.front());
  const bool begins_so = std::isalpha(first) != 0 || first == '_' || first == '/' || first == '.' ||
                         first == '~' || first == '$' || first >= 0x80;
  return begins_so && std::find(words.begin(), words.end(), value) == words.end();
}

/// Recognises a number followed by a unit: 30s, 64MiB.
bool looks_like_quantity(std::string_view value) {
  const std::size_t unit = value.find_first_not_of("0123456789.");
  return unit != npos && unit > 0 &&
         std::all_of(value.begin() + unit, value.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

}  // namespace

complaint syntax_error(const source& text, std::size_t offset, std::string_view description) {
  const parts said = parts_of(description);
  const std::optional<span> value = value_around(text, offset);
  const std::string_view written = value ? value->text() : "";
  const bool at_line_end =
      offset >= text.text().size() || text.text()[offset] == '\n' || text.text()[offset] == '\r';

  complaint made;
  made.at = {&text, offset, offset};
  made.message = fmt::format("this is not TOML: {}", sentence(said));
  // A value that spans lines is usually one that was not closed.
  const toml_keys keys = scan_keys(text.text());
  if (!keys.complete && !keys.keys.empty()) {
    const key_place& open = keys.keys.back();
    const bool unfinished = open.statement_end == open.statement_begin;
    const span key{&text, open.begin, open.end};
    if (unfinished && text.position_of(open.begin).line < text.position_of(offset).line) {
      made.related.push_back(excerpt_of(key, "the value of this key was not closed"));
    }
  }
  if (said.where == "string" && at_line_end && value && (written.front() == '"' || written.front() == '\'')) {
    const std::string_view line = text.line_at(value->begin);
    const std::size_t line_begin = text.offset_of({text.position_of(value->begin).line, 1});
    made.at = {&text, value->begin, line_begin + line.size()};
    made.message = "this is not TOML: the string is not closed";
    made.label = fmt::format("needs another {} at its end", written.front());
  } else if (value && offset <= value->end &&
             is_value_of_another_language(written, key_at(keys, value->begin), made)) {
    made.at = *value;
  } else if (value && (looks_like_text(written) || looks_like_quantity(written)) && offset <= value->end) {
    made.at = *value;
    made.message = "this is not TOML: the string has no quotes";
    made.label = fmt::format("did you mean \"{}\"?", printable(shortened(written, 60)));
  } else if (said.what.find("not representable in 64 bits") != npos && value) {
    made.at = *value;
    made.message = "this is not TOML: the whole number does not fit in 64 bits";
    made.label = "out of range";
  } else if (!value && offset < text.text().size() &&
             static_cast<unsigned char>(text.text()[offset]) >= 0x80) {
    made.label = "a name with this character needs quotes";
  }
  return made;
}

}  // namespace penstock::config_file
