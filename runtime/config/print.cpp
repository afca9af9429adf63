// A loaded config as a file again, with the source of each value.
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
  for (const line& one : lines) text += fmt::format("{:<{}}  # {}\n", one.setting, width, one.comment);
  return text;
}

std::string included_text(const loaded_config& loaded) {
  if (loaded.included.empty()) return "default";
  std::string text = "merged:";
  for (const std::string& name : loaded.included) text += " " + name;
  return text;
}

}  // namespace

std::string print_effective(const loaded_config& loaded) {
  const key_table& all = key_table::get();
  std::string text;
  for (const table_info& table : all.tables()) {
    if (table.path.ends_with("[]")) continue;
    std::vector<line> lines;
    std::string maps;
    for (const key_info* key : all.keys_of(table.path)) {
      if (key->form.count != arity::map) {
        const bool include = key->path == "include";
        lines.push_back({fmt::format("{} = {}", key->name, key->text_of(&loaded.values)),
                         include ? included_text(loaded) : loaded.source_of(key->path).text()});
        continue;
      }
      std::vector<line> entries;
      for (const auto& [name, value] : *static_cast<const string_map*>(key->locate_in(&loaded.values))) {
        entries.push_back({fmt::format("{} = {}", toml_key(name), toml_string(escaped_references(value))),
                           loaded.source_of(join(key->path, name)).text()});
      }
      if (!entries.empty()) maps += fmt::format("\n[{}]\n{}", key->path, written(entries));
    }
    if (!lines.empty())
      text += (table.path.empty() ? "" : fmt::format("\n[{}]\n", table.path)) + written(lines);
    text += maps;
  }
  return text;
}

}  // namespace penstock::config_file
