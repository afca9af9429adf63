// Messages about a key or table that does not exist.
#include "runtime/base/text.hpp"
#include "runtime/config/foreign_names.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

std::string upper(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return made;
}

/// The tables that have a key of this name: the user may have put it into the wrong table.
std::string other_tables(std::string_view name) {
  std::vector<std::string> places;
  for (const key_info& key : key_table::get().keys()) {
    if (key.name != name || in_array(key)) continue;
    places.push_back(key.table.empty() ? "the top of the file, before the first table"
                                       : fmt::format("[{}]", key.table));
  }
  if (places.empty() || places.size() > 2) return {};
  return fmt::format("'{}' belongs to {}{}", name, places[0], places.size() > 1 ? " or " + places[1] : "");
}

/// The equivalent in penstock of a name from another loader.
std::string foreign_label(const foreign_name& foreign, std::string_view table, bool from_environment) {
  if (foreign.key.empty()) return "there is no such key";
  const key_info& meant = *key_table::get().find(foreign.key);
  if (from_environment) {
    std::string variable = "PENSTOCK__" + upper(meant.path);
    for (std::size_t dot = variable.find('.'); dot != std::string::npos; dot = variable.find('.'))
      variable.replace(dot, 1, "__");
    return fmt::format("did you mean {}?", variable);
  }
  if (meant.table == table) return fmt::format("did you mean '{}'?", meant.name);
  return fmt::format("did you mean {}?", meant.subject());
}

}  // namespace

complaint unknown_key(const member& entry, std::string_view table) {
  const key_table& all = key_table::get();
  const bool has_header = entry.value.kind == node_kind::table || entry.value.at.begin == entry.key.begin;
  std::vector<std::string_view> names;
  for (const key_info* key : all.keys_of(table)) names.push_back(key->name);
  for (const table_info* inner : all.tables_below(table))
    names.push_back(inner->path.substr(inner->path.rfind('.') + 1));
  const std::string name = printable(shortened(entry.name, 60));
  const bool from_environment = entry.key.in != nullptr && entry.key.in->kind() == source_kind::environment;

  complaint made;
  made.key = join(table, entry.name);
  made.at = entry.key;
  const bool array = table.ends_with("[]");
  const std::string shown_table =
      array ? fmt::format("[[{}]]", table.substr(0, table.size() - 2)) : fmt::format("[{}]", table);
  if (has_header && !array) {
    made.message = fmt::format("unknown table [{}]", printable(shortened(join(table, entry.name), 80)));
  } else {
    made.message = table.empty() ? fmt::format("unknown key '{}'", name)
                                 : fmt::format("unknown key '{}' in {}", name, shown_table);
  }
  const bool quoted_path = entry.name.find('.') != std::string::npos;
  if (quoted_path && (all.find(made.key) != nullptr || all.find_table(made.key) != nullptr)) {
    made.label = "the quotes make it a single name; leave them out";
    return made;
  }
  if (const foreign_name* const foreign = foreign_key(entry.name)) {
    made.label = foreign_label(*foreign, table, from_environment);
    made.help = foreign->note;
    return made;
  }
  const std::string_view near = meant_name(entry.name, names);
  if (!near.empty()) {
    made.label = fmt::format("did you mean '{}'?", from_environment ? upper(near) : std::string(near));
    return made;
  }
  made.label = has_header && !array ? "no such table" : "no such key";
  made.help = other_tables(entry.name);
  if (!made.help.empty() || names.empty()) return made;
  std::sort(names.begin(), names.end());
  for (const std::string_view known : names)
    made.help += fmt::format("{}{}", made.help.empty() ? "" : ", ", known);
  made.help = table.empty() ? "the top of the file has " + made.help
                            : fmt::format("{} has {}", shown_table, made.help);
  return made;
}

}  // namespace penstock::config_file
