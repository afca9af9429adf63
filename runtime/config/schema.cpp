// The key table as JSON Schema.
#include "runtime/config/describe.hpp"
#include "runtime/config/key_table.hpp"
#include "runtime/config/wording.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace penstock::config_file {
namespace {

using json = nlohmann::ordered_json;

/// Accepts any string with a '$', because its value is known only at load time.
json reference() {
  return {{"type", "string"}, {"pattern", "\\$"}};
}

/// Accepts either the value, which is not a string, or a string with a reference.
json or_reference(json value) {
  return {{"anyOf", json::array({std::move(value), json{{"type", "string"}, {"pattern", "\\$\\{"}}})}};
}

json with_pattern(const char* pattern) {
  return {{"anyOf", json::array({json{{"type", "string"}, {"pattern", pattern}}, reference()})}};
}

json number_schema(const char* type, const value_form& form, const value_limits& limits) {
  json made{{"type", type}};
  const bool whole = form.element == scalar::integer;
  const auto bound = [whole](double value) {
    return whole ? json(static_cast<std::int64_t>(value)) : json(value);
  };
  const bool limited = limits.kind == limit_kind::range;
  if (limited) {
    made["minimum"] = bound(limits.low);
  } else if (whole) {
    made["minimum"] = 0;
  }
  if (limited && !std::isinf(limits.high)) {
    made["maximum"] = bound(limits.high);
  } else if (whole) {
    made["maximum"] = form.highest;
  }
  return made;
}

json text_schema(const value_limits& limits) {
  switch (limits.kind) {
    case limit_kind::path: return with_pattern("^(?![A-Za-z][A-Za-z0-9+.-]*://)");
    case limit_kind::location: return with_pattern("^((s3|https?)://|(?![A-Za-z][A-Za-z0-9+.-]*://))");
    case limit_kind::device: return with_pattern("^(auto|host|cuda|cuda:[0-9]+|uuid:GPU-[0-9A-Fa-f-]+)$");
    case limit_kind::session_name: return with_pattern("^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$");
    case limit_kind::listen_address: return with_pattern("^$|:[0-9]+$");
    default: return {{"type", "string"}};
  }
}

json object_schema(std::string_view table);

json element_schema(const key_info& key) {
  switch (key.form.element) {
    case scalar::boolean: return or_reference({{"type", "boolean"}});
    case scalar::integer: return or_reference(number_schema("integer", key.form, key.limits));
    case scalar::number: return or_reference(number_schema("number", key.form, key.limits));
    case scalar::text: return text_schema(key.limits);
    case scalar::size: {
      json text = with_pattern("^([0-9]+\\.?[0-9]*|\\.[0-9]+) *(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)$");
      if (!key.names_its_unit()) return text;
      text["anyOf"].push_back({{"type", "integer"}, {"minimum", 1}});
      return text;
    }
    case scalar::duration: return with_pattern("^([0-9]+\\.?[0-9]*|\\.[0-9]+) *(d|h|m|s|ms|us|ns)$");
    case scalar::choice: {
      json names = json::array();
      for (const std::string_view name : choices_of(key)) names.push_back(name);
      return {{"anyOf", json::array({json{{"enum", std::move(names)}}, reference()})}};
    }
    case scalar::table: return object_schema(elements_of(key));
  }
  return json::object();
}

json value_schema(const key_info& key) {
  json element = element_schema(key);
  switch (key.form.count) {
    case arity::one: return element;
    case arity::optional: {
      json options = element["anyOf"];  // every optional type has an anyOf
      options.push_back({{"const", key.form.absent}});
      return {{"anyOf", std::move(options)}};
    }
    case arity::fixed:
      return {{"type", "array"},
              {"items", element},
              {"minItems", key.form.length},
              {"maxItems", key.form.length}};
    case arity::list: {
      json made{{"type", "array"}, {"items", element}};
      if (key.limits.kind == limit_kind::command) made["minItems"] = 1;
      return made;
    }
    case arity::one_or_list:
      return {
          {"anyOf", json::array({element, json{{"type", "array"}, {"items", element}, {"minItems", 1}}})}};
    case arity::list_or_word: {
      json words = json::array();
      for (const std::string_view word : key.form.choices) words.push_back(word);
      return {{"anyOf", json::array({json{{"enum", std::move(words)}}, reference(),
                                     json{{"type", "array"}, {"items", element}, {"minItems", 1}}})}};
    }
    case arity::map: {
      json made{{"type", "object"}, {"additionalProperties", element}};
      if (key.limits.kind == limit_kind::variable_names) made["propertyNames"] = {{"pattern", "^[^=]+$"}};
      return made;
    }
  }
  return element;
}

json object_schema(std::string_view table) {
  const key_table& all = key_table::get();
  json properties = json::object();
  for (const key_info* key : all.keys_of(table)) {
    json made{{"description", description_of(*key)}};
    made.update(value_schema(*key));
    // Most TOML values are JSON too. A map is not: only the docs have its default.
    json fallback = json::parse(key->default_text, nullptr, false);
    if (!fallback.is_discarded() && key->path != "name") made["default"] = std::move(fallback);
    properties[std::string(key->name)] = std::move(made);
  }
  for (const table_info* inner : all.tables_below(table)) {
    properties[std::string(inner->path.substr(inner->path.rfind('.') + 1))] = object_schema(inner->path);
  }
  return {{"type", "object"},
          {"description", all.find_table(table)->help},
          {"properties", std::move(properties)},
          {"additionalProperties", false}};
}

}  // namespace

std::string json_schema() {
  json made{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "penstock config file"}};
  made.update(object_schema(""));
  return made.dump(2) + "\n";
}

}  // namespace penstock::config_file
