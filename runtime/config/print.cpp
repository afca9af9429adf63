// Prints a loaded config as a config file, with the source of each value.
#include "runtime/config/describe.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

struct line {
  std::string setting;
  std::string comment;
};

constexpr std::size_t aligned_width_max = 60;

std::string written(const std::vector<line>& lines) {
  std::size_t width = 0;
  for (const line& one : lines) {
    if (one.setting.size() <= aligned_width_max) width = std::max(width, one.setting.size());
  }
  std::string text;
  for (const line& one : lines) {
    text += one.comment.empty() ? one.setting + "\n"
                                : fmt::format("{:<{}}  # {}\n", one.setting, width, one.comment);
  }
  return text;
}

std::string included_text(const loaded_config& loaded) {
  if (loaded.included.empty()) return "default";
  std::string text = "merged:";
  for (const std::string& name : loaded.included) text += " " + name;
  return text;
}

/// Adds the text of comment(key path) after each value, unless that text is empty.
template <class Comment>
std::string print(const config& values, Comment comment) {
  const key_table& all = key_table::get();
  std::string text;
  for (const table_info& table : all.tables()) {
    if (table.path.ends_with("[]")) continue;
    std::vector<line> lines;
    std::string maps;
    for (const key_info* key : all.keys_of(table.path)) {
      if (key->form.count != arity::map) {
        lines.push_back({fmt::format("{} = {}", key->name, key->text_of(&values)), comment(key->path)});
        continue;
      }
      std::vector<line> entries;
      for (const auto& [name, value] : *static_cast<const string_map*>(key->locate_in(&values))) {
        entries.push_back({fmt::format("{} = {}", toml_key(name), toml_string(escaped_references(value))),
                           comment(join(key->path, name))});
      }
      if (!entries.empty()) maps += fmt::format("\n[{}]\n{}", key->path, written(entries));
    }
    if (!lines.empty())
      text += (table.path.empty() ? "" : fmt::format("\n[{}]\n", table.path)) + written(lines);
    text += maps;
  }
  return text;
}

}  // namespace

std::string print_effective(const loaded_config& loaded) {
  return print(loaded.values, [&](const std::string& key) {
    return key == "include" ? included_text(loaded) : loaded.source_of(key).text();
  });
}

std::string print_values(const config& settings) {
  return print(settings, [](const std::string&) { return std::string(); });
}

}  // namespace penstock::config_file
