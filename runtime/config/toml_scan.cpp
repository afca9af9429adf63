#include "runtime/config/toml_scan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>
#include <utility>

namespace penstock::config_file {
namespace {

// No valid config is nested this deep; without a limit a hostile text could make the cost quadratic.
constexpr std::size_t deepest_value = 16;
constexpr std::size_t longest_path = 24;

bool is_bare(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

/// The end of the string that begins at `at`: after its closing quotes, or the end of its line if there are
/// none.
std::size_t string_end(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool basic = quote == '"';
  const bool several_lines = text.substr(at).starts_with(basic ? "\"\"\"" : "'''");
  const std::size_t quotes = several_lines ? 3 : 1;
  for (std::size_t i = at + quotes; i < text.size(); ++i) {
    if (basic && text[i] == '\\') {
      ++i;
    } else if (text[i] == '\n' && !several_lines) {
      return i;
    } else if (text[i] == quote) {
      std::size_t run = 1;
      // Up to two quotes may directly precede the closing three.
      while (several_lines && run < 5 && i + run < text.size() && text[i + run] == quote) ++run;
      if (run >= quotes) return i + run;
      i += run - 1;
    }
  }
  return text.size();
}

class scanner {
 public:
  explicit scanner(std::string_view text) : text_(text) {}

  toml_keys run() {
    while (skip_blank(), at_ < text_.size()) {
      const bool understood = text_[at_] == '[' ? header() : entry(table_, key_kind::value, at_);
      if (!understood || !end_of_line()) {
        found_.complete = false;
        break;
      }
    }
    found_.end = at_;
    return std::move(found_);
  }

 private:
  using path = std::vector<std::string>;
  static std::string element_name(std::size_t index) { return fmt::format("{}{}", element_mark, index); }

  [[nodiscard]] char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_spaces() {
    while (here() == ' ' || here() == '\t') ++at_;
  }
  void skip_comment() {
    if (here() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
  }
  void skip_blank() {
    while (at_ < text_.size() &&
           (here() == ' ' || here() == '\t' || here() == '\r' || here() == '\n' || here() == '#')) {
      if (here() == '#') {
        skip_comment();
      } else {
        ++at_;
      }
    }
  }
  bool end_of_line() {
    skip_spaces();
    skip_comment();
    if (here() == '\r') ++at_;
    return at_ >= text_.size() || here() == '\n';
  }

  struct dotted_key {
    path parts;
    std::size_t last_begin = 0;
    std::size_t last_end = 0;
  };

  bool key(dotted_key& into) {
    while (true) {
      skip_spaces();
      into.last_begin = at_;
      std::string name;
      if (here() == '"' || here() == '\'') {
        const std::size_t end = string_end(text_, at_);
        // Here, two spellings of a key that differ only in escapes are two keys; toml++ reports the duplicate.
        if (end < at_ + 2) return false;
        name = text_.substr(at_ + 1, end - at_ - 2);
        at_ = end;
      } else {
        while (is_bare(here())) name += text_[at_++];
        if (name.empty()) return false;
      }
      into.last_end = at_;
      into.parts.push_back(std::move(name));
      skip_spaces();
      if (here() != '.') return true;
      ++at_;
    }
  }

  bool header() {
    const std::size_t begin = at_;
    const bool array = text_.substr(at_).starts_with("[[");
    at_ += array ? 2 : 1;
    dotted_key name;
    if (!key(name) || !text_.substr(at_).starts_with(array ? "]]" : "]")) return false;
    at_ += array ? 2 : 1;
    const auto parts = static_cast<std::uint32_t>(name.parts.size());
    path full;
    for (std::string& part : name.parts) {
      full.push_back(std::move(part));
      // A path through an array of tables refers to its last element.
      const auto counted = elements_.find(full);
      if (counted != elements_.end() && full.size() < parts) full.back() += element_name(counted->second - 1);
    }
    if (array) {
      table_ = full;
      table_.back() += element_name(elements_[full]++);
    } else {
      table_ = full;
    }
    found_.keys.push_back({std::move(full), array ? key_kind::table_array : key_kind::table, parts,
                           name.last_begin, name.last_end, begin, at_});
    return true;
  }

  bool entry(const path& table, key_kind use, std::size_t statement_begin) {
    dotted_key name;
    if (!key(name) || here() != '=') return false;
    ++at_;
    path full = table;
    full.insert(full.end(), name.parts.begin(), name.parts.end());
    if (full.size() > longest_path) return false;
    const std::size_t index = found_.keys.size();
    found_.keys.push_back({full, use, static_cast<std::uint32_t>(name.parts.size()), name.last_begin,
                           name.last_end, statement_begin, statement_begin});
    skip_spaces();
    if (!value(full)) return false;
    found_.keys[index].statement_end = at_;
    return true;
  }

  bool value(const path& of) {
    if (++depth_ > deepest_value) return false;
    bool understood = true;
    if (here() == '"' || here() == '\'') {
      at_ = string_end(text_, at_);
    } else if (here() == '[') {
      understood = array(of);
    } else if (here() == '{') {
      understood = inline_table(of);
    } else {
      const std::size_t begin = at_;
      at_ = std::min(text_.find_first_of(",]}#\r\n", at_), text_.size());
      while (at_ > begin && (text_[at_ - 1] == ' ' || text_[at_ - 1] == '\t')) --at_;
      understood = at_ > begin;
    }
    --depth_;
    return understood;
  }

  bool array(const path& of) {
    ++at_;
    for (std::size_t index = 0;; ++index) {
      skip_blank();
      if (here() == ']') break;
      path element = of;
      element.back() += element_name(index);
      if (!value(element)) return false;
      skip_blank();
      if (here() == ',') {
        ++at_;
      } else if (here() != ']') {
        return false;
      }
    }
    ++at_;
    return true;
  }

  bool inline_table(const path& of) {
    std::size_t before = at_ + 1;
    ++at_;
    while (true) {
      skip_spaces();
      if (here() == '}') break;
      if (!entry(of, key_kind::inline_value, before)) return false;
      skip_spaces();
      before = at_;
      if (here() == ',') {
        ++at_;
      } else if (here() != '}') {
        return false;
      }
    }
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  path table_;
  std::map<path, std::size_t> elements_;  ///< the number of elements of each array of tables so far
  toml_keys found_;
};

/// How a path has been defined so far.
struct maker {
  const key_place* place = nullptr;
  /// Defined only as a parent of another table, so a later [header] may still define it.
  bool passed_through = false;
};

}  // namespace

toml_keys scan_keys(std::string_view text) {
  return scanner(text).run();
}

std::vector<clash> clashes_of(const toml_keys& found) {
  std::unordered_map<std::string, maker> made;
  std::vector<clash> all;
  // Do not also report the keys inside a clashing table or value.
  bool in_dropped_table = false;
  std::size_t dropped_until = 0;
  for (const key_place& key : found.keys) {
    const bool header = key.kind == key_kind::table || key.kind == key_kind::table_array;
    if (header) in_dropped_table = false;
    if (in_dropped_table || key.begin < dropped_until) continue;
    const key_place* earlier = nullptr;
    std::string way;
    // No parent may be a value or, for dotted keys, a table with its own header.
    for (std::size_t length = 1; length < key.path.size() && earlier == nullptr; ++length) {
      way.append(key.path[length - 1]).push_back('\n');  // an unescaped key cannot contain a line break
      const auto [at, is_new] = made.try_emplace(way, maker{&key, true});
      if (is_new || at->second.passed_through) continue;
      const bool own_table = length + key.dotted <= key.path.size();
      const key_kind other = at->second.place->kind;
      const bool is_value = other == key_kind::value || other == key_kind::inline_value;
      if (header ? is_value : !own_table) earlier = at->second.place;
    }
    if (earlier == nullptr) {
      way.append(key.path.back()).push_back('\n');
      const auto [at, is_new] = made.try_emplace(way, maker{&key, false});
      maker& existing = at->second;
      const bool next_element =
          key.kind == key_kind::table_array && existing.place->kind == key_kind::table_array;
      if (!is_new && existing.passed_through && key.kind == key_kind::table &&
          existing.place->kind != key_kind::value) {
        existing = {&key, false};
      } else if (!is_new && !next_element) {
        earlier = existing.place;
      }
    }
    if (earlier == nullptr) continue;
    const auto kind = [](key_kind use) { return use == key_kind::inline_value ? key_kind::value : use; };
    all.push_back({*earlier, key, earlier->path == key.path && kind(earlier->kind) == kind(key.kind)});
    in_dropped_table = header;
    if (!header) dropped_until = key.statement_end;
  }
  return all;
}

std::size_t find_overlong_key(std::string_view text, std::size_t limit) {
  std::size_t dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = string_end(text, at) - 1;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      dots = 0;
    } else if (c == '.') {
      if (++dots >= limit) return at;
    } else if (!is_bare(c) && c != ' ' && c != '\t') {
      dots = 0;
    }
  }
  return std::string_view::npos;
}

}  // namespace penstock::config_file
