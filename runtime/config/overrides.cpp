// Settings from PENSTOCK__TABLE__KEY variables and from --set: each is a one-line text that becomes a tree
// with one branch.
#include "runtime/base/text.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/layers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace penstock::config_file {
namespace {

struct path_part {
  std::string name;
  span at;
};

constexpr std::string_view variable_prefix = "PENSTOCK__";

complaint about(span at, std::string message, std::string label, std::string help = {}) {
  return {.at = at, .message = std::move(message), .label = std::move(label), .help = std::move(help)};
}

/// What a path refers to: a key, or an entry of a map.
struct destination {
  const key_info* key = nullptr;
  bool entry = false;

  /// Whether the key is a string. If it is, 4 and true are strings, too.
  [[nodiscard]] bool wants_string() const {
    return key != nullptr && key->form.element == scalar::text && (entry || key->form.count == arity::one);
  }
};

destination destination_of(const std::vector<path_part>& parts) {
  std::string path;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const key_info* const key = key_table::get().find_in(path, parts[i].name);
    path = join(path, parts[i].name);
    if (key == nullptr) continue;
    if (i + 1 == parts.size()) return {key, false};
    if (i + 2 == parts.size() && key->form.count == arity::map) return {key, true};
  }
  return {};
}

/// Parses the value as TOML, else takes it as a string. Empty if it looks like TOML but is invalid.
std::optional<node> value_of(const source& text, std::size_t begin, const std::vector<path_part>& parts,
                             complaints& found) {
  const destination to = destination_of(parts);
  const bool as_string = to.wants_string();
  std::optional<node> value = parse_value(text, begin);
  const bool is_scalar = value && value->kind != node_kind::array && value->kind != node_kind::table;
  if (value && !(as_string && is_scalar && value->kind != node_kind::text)) return value;
  const std::string written = text.text().substr(begin);
  const span at{&text, begin, text.text().size()};
  const std::size_t first = written.find_first_not_of(" \t");
  const bool quoted =
      first != std::string::npos && std::string_view("[{\"'").find(written[first]) != std::string_view::npos;
  if (to.key != nullptr && !as_string && quoted) {
    found.add(about(at, fmt::format("the value of '{}' is not TOML", to.key->path), "cannot be read"));
    return std::nullopt;
  }
  node bare;
  bare.kind = node_kind::text;
  bare.text = written;
  bare.at = at;
  if (text.kind() == source_kind::override && first != std::string::npos) {
    // `--set "gpu.device = host"`: the spaces are those around the '='.
    const std::size_t last = written.find_last_not_of(" \t");
    bare.text = written.substr(first, last - first + 1);
    bare.at = {&text, begin + first, begin + last + 1};
  }
  return bare;
}

/// The value, wrapped in the tables on its path.
node branch(const std::vector<path_part>& parts, node value) {
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part != parts.rbegin()) value.at = part->at;
    node table;
    table.at = part->at;
    table.members.push_back({part->name, part->at, std::move(value)});
    value = std::move(table);
  }
  return value;
}

void add_branch(layer_stack& stack, const source& text, std::size_t value_begin,
                const std::vector<path_part>& parts, complaints& found) {
  if (parts.front().name == "include") {
    found.add(about(parts.front().at, "'include' works only in a file", "not here"));
    return;
  }
  std::optional<node> value = value_of(text, value_begin, parts, found);
  if (!value) {
    stack.broken.insert(destination_of(parts).key->path);
    return;
  }
  stack.layers.push_back({&text, branch(parts, std::move(*value))});
}

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

bool has_lower_case(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::islower(c) != 0; });
}

/// Splits LOADER__WORKERS into parts; entries of maps keep their spelling. Empty if there are lower-case
/// letters where they would allow two spellings of one setting.
std::optional<std::vector<path_part>> variable_parts(const source& text, std::size_t begin, std::size_t end) {
  std::vector<path_part> parts;
  std::string path;
  while (true) {
    const key_info* const around = key_table::get().find(path);
    const bool entry = around != nullptr && around->form.count == arity::map;
    const std::string_view rest = std::string_view(text.text()).substr(begin, end - begin);
    const std::size_t length = entry ? std::string_view::npos : rest.find("__");
    const std::string_view name = rest.substr(0, length);
    if (!entry && has_lower_case(name)) return std::nullopt;
    parts.push_back({entry ? std::string(name) : lower(name), {&text, begin, begin + name.size()}});
    if (length == std::string_view::npos) return parts;
    path = join(path, parts.back().name);
    begin += length + 2;
  }
}

/// Splits loader.env."A.B" into parts. If it is not a dotted key, reports that and returns empty.
std::optional<std::vector<path_part>> dotted_parts(const source& text, std::size_t end, complaints& found) {
  std::vector<path_part> parts;
  const std::string_view key = std::string_view(text.text()).substr(0, end);
  for (std::size_t at = 0;;) {
    while (at < end && key[at] == ' ') ++at;
    const std::size_t begin = at;
    std::string name;
    if (at < end && (key[at] == '"' || key[at] == '\'')) {
      const std::size_t close = key.find(key[at], at + 1);
      at = close == std::string_view::npos ? end : close + 1;
      if (close != std::string_view::npos) name = key.substr(begin + 1, close - begin - 1);
    } else {
      while (at < end &&
             (std::isalnum(static_cast<unsigned char>(key[at])) != 0 || key[at] == '_' || key[at] == '-'))
        ++at;
      name = key.substr(begin, at - begin);
    }
    const std::size_t name_end = at;
    while (at < end && key[at] == ' ') ++at;
    if (name.empty() || (at < end && key[at] != '.')) {
      const std::size_t wrong = name.empty() ? begin : at;
      found.add(about({&text, wrong, wrong + 1}, fmt::format("'{}' is not a key", printable(key)),
                      "expected a name", "write KEY=VALUE, as in loader.workers=4"));
      return std::nullopt;
    }
    parts.push_back({std::move(name), {&text, begin, name_end}});
    if (at >= end) return parts;
    ++at;
  }
}

/// The '=' between key and value; one in quotes belongs to the key.
std::size_t equals_sign(std::string_view assignment) {
  char quote = '\0';
  for (std::size_t i = 0; i < assignment.size(); ++i) {
    const char c = assignment[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '=') {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace

void add_environment(layer_stack& stack, const source_request& request, complaints& found) {
  environment_list settings;
  for (const auto& variable : request.environment) {
    if (variable.first.starts_with(variable_prefix)) settings.push_back(variable);
  }
  std::sort(settings.begin(), settings.end());
  for (const auto& [name, value] : settings) {
    const source& text =
        stack.add_source(source_kind::environment, "environment", name + "=" + value, request.working_folder);
    const auto parts = variable_parts(text, variable_prefix.size(), name.size());
    if (!parts) {
      found.add(about({&text, 0, name.size()},
                      fmt::format("{} is not written in upper case", printable(name)),
                      "settings in the environment look like PENSTOCK__LOADER__WORKERS"));
      continue;
    }
    add_branch(stack, text, name.size() + 1, *parts, found);
  }
}

void add_overrides(layer_stack& stack, const source_request& request, complaints& found) {
  for (const override_text& one : request.overrides) {
    const source& text =
        stack.add_source(source_kind::override, one.origin, one.assignment, request.working_folder);
    const std::size_t equals = equals_sign(one.assignment);
    if (equals == std::string::npos) {
      found.add(about({&text, 0, one.assignment.size()}, fmt::format("{} needs KEY=VALUE", one.origin),
                      "there is no '='", "as in loader.workers=4"));
      continue;
    }
    const auto parts = dotted_parts(text, equals, found);
    if (parts) add_branch(stack, text, equals + 1, *parts, found);
  }
}

}  // namespace penstock::config_file
