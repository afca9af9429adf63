// When a key has an effect at all, and what to say about a key that does not exist.
#include "runtime/base/text.hpp"
#include "runtime/config/key_table.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace penstock::config_file {
namespace {

constexpr std::string_view type_key = "dataset.type";
constexpr std::string_view augment_key = "image.augment";
constexpr std::string_view dtype_key = "gpu.dtype";

template <class Enum>
struct condition {
  std::string_view key;
  std::vector<Enum> wanted;

  [[nodiscard]] std::string text() const {
    std::vector<std::string_view> names;
    for (const Enum value : wanted) names.push_back(spelling(value));
    std::vector<std::string_view> others = spellings<Enum>();
    std::erase_if(others, [&](std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    });
    // "All but one" is shorter than all of them.
    return names.size() > 3 && others.size() == 1 ? fmt::format("anything but \"{}\"", others[0])
                                                  : quoted_list(names);
  }
  [[nodiscard]] bool holds(Enum value) const {
    return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
  }
};

condition<dataset_type> wanted_types(used_with use) {
  using enum dataset_type;
  switch (use) {
    case used_with::always: break;
    case used_with::for_stored: return {type_key, {image_folder, tar, npy, raw, tokens, custom}};
    case used_with::for_synthetic: return {type_key, {synthetic}};
    case used_with::for_raw_or_synthetic: return {type_key, {raw, synthetic}};
    case used_with::for_custom: return {type_key, {custom}};
    case used_with::for_images:
    case used_with::for_random_resized_crop:
    case used_with::for_centre_crop:
    case used_with::for_float_images: return {type_key, {image_folder, tar, custom}};
  }
  return {type_key, {}};
}

condition<augment_kind> wanted_augments(used_with use) {
  if (use == used_with::for_random_resized_crop) return {augment_key, {augment_kind::random_resized_crop}};
  if (use == used_with::for_centre_crop) return {augment_key, {augment_kind::centre_crop}};
  return {augment_key, {}};
}

condition<dtype> wanted_dtypes(used_with use) {
  if (use == used_with::for_float_images)
    return {dtype_key, {dtype::float16, dtype::bfloat16, dtype::float32}};
  return {dtype_key, {}};
}

std::string upper(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return made;
}

/// Where a key of this name does exist: its author may only have missed the table.
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

}  // namespace

std::optional<unused_because> unused(used_with use, const penstock::config& values) {
  const auto check = [](const auto& wanted, auto value) -> std::optional<unused_because> {
    if (wanted.wanted.empty() || wanted.holds(value)) return std::nullopt;
    return unused_because{wanted.key, wanted.text()};
  };
  if (auto no = check(wanted_types(use), values.dataset.type)) return no;
  if (auto no = check(wanted_augments(use), values.image.augment)) return no;
  return check(wanted_dtypes(use), values.gpu.dtype);
}

std::vector<std::pair<std::string_view, std::string>> conditions_of(used_with use) {
  std::vector<std::pair<std::string_view, std::string>> all;
  const auto add = [&all](const auto& wanted) {
    if (!wanted.wanted.empty()) all.emplace_back(wanted.key, wanted.text());
  };
  add(wanted_types(use));
  add(wanted_augments(use));
  add(wanted_dtypes(use));
  return all;
}

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
    made.label = "quotes make one name of it; leave them out";
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
  made.help =
      table.empty() ? "at the top there are " + made.help : fmt::format("{} has {}", shown_table, made.help);
  return made;
}

}  // namespace penstock::config_file
