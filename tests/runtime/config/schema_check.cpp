#include "schema_check.hpp"

#include <algorithm>
#include <regex>
#include <stdexcept>

namespace penstock::config_file::testing {
namespace {

using json = nlohmann::json;

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  throw std::runtime_error("unknown type in the schema: " + type);
}

bool matches(const std::string& text, const json& pattern) {
  return std::regex_search(text, std::regex(pattern.get<std::string>(), std::regex::ECMAScript));
}

std::string properties_mismatch(const json& schema, const json& value, const std::string& at) {
  for (const auto& [name, inner] : value.items()) {
    const std::string place = at + "/" + name;
    const json properties = schema.value("properties", json::object());
    if (schema.contains("propertyNames") && !matches(name, schema["propertyNames"]["pattern"])) {
      return place + ": the name does not match";
    }
    if (properties.contains(name)) {
      std::string no = schema_mismatch(properties[name], inner, place);
      if (!no.empty()) return no;
    } else if (schema.contains("additionalProperties")) {
      const json& others = schema["additionalProperties"];
      if (others.is_boolean() && !others.get<bool>()) return place + ": no such property";
      std::string no = others.is_object() ? schema_mismatch(others, inner, place) : "";
      if (!no.empty()) return no;
    }
  }
  return {};
}

}  // namespace

std::string schema_mismatch(const json& schema, const json& value, const std::string& at) {
  for (const auto& [keyword, wanted] : schema.items()) {
    if (keyword == "type") {
      if (!has_type(value, wanted)) return at + ": is not of type " + wanted.get<std::string>();
    } else if (keyword == "enum") {
      if (std::find(wanted.begin(), wanted.end(), value) == wanted.end()) return at + ": is not in the enum";
    } else if (keyword == "const") {
      if (value != wanted) return at + ": is not the constant";
    } else if (keyword == "pattern") {
      if (value.is_string() && !matches(value, wanted))
        return at + ": does not match " + wanted.get<std::string>();
    } else if (keyword == "minimum") {
      if (value.is_number() && value < wanted) return at + ": is below the minimum";
    } else if (keyword == "maximum") {
      if (value.is_number() && value > wanted) return at + ": is above the maximum";
    } else if (keyword == "minItems") {
      if (value.is_array() && value.size() < wanted.get<std::size_t>()) return at + ": has too few items";
    } else if (keyword == "maxItems") {
      if (value.is_array() && value.size() > wanted.get<std::size_t>()) return at + ": has too many items";
    } else if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        std::string no = schema_mismatch(wanted, value[i], at + "/" + std::to_string(i));
        if (!no.empty()) return no;
      }
    } else if (keyword == "anyOf") {
      const bool fits = std::any_of(wanted.begin(), wanted.end(), [&](const json& option) {
        return schema_mismatch(option, value, at).empty();
      });
      if (!fits) return at + ": fits none of the alternatives";
    } else if (keyword == "properties" || keyword == "additionalProperties" || keyword == "propertyNames") {
      if (!value.is_object()) continue;
      std::string no = properties_mismatch(schema, value, at);
      if (!no.empty()) return no;
    } else if (keyword != "$schema" && keyword != "title" && keyword != "description" &&
               keyword != "default") {
      throw std::runtime_error("unknown keyword in the schema: " + keyword);
    }
  }
  return {};
}

}  // namespace penstock::config_file::testing
