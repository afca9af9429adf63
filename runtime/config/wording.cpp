#include "runtime/config/wording.hpp"

#include <fmt/core.h>

namespace penstock::config_file {
namespace {

std::string element_text(const key_info& key, bool many) {
  switch (key.form.element) {
    case scalar::boolean: return "true or false";
    case scalar::integer: return many ? "whole numbers" : "whole number";
    case scalar::number: return many ? "numbers" : "number";
    case scalar::text: return many ? "strings" : "string";
    case scalar::size: return many ? "sizes" : "size";
    case scalar::duration: return many ? "durations" : "duration";
    case scalar::choice: return quoted_list(choices_of(key));
    case scalar::table: return many ? "tables" : "table";
  }
  return {};
}

std::string limit_words(const key_info& key) {
  switch (key.limits.kind) {
    case limit_kind::any: return {};
    case limit_kind::range: {
      const std::string limits = limits_text(key.form, key.limits);
      const bool many = key.form.count == arity::list || key.form.count == arity::fixed;
      return many ? "each " + limits : limits;
    }
    case limit_kind::path:
      return key.form.count == arity::map ? "paths relative to the file that contains them"
                                          : "a path relative to the file that contains it";
    case limit_kind::location:
      return "a path relative to the file that contains it, or a URL (s3, http, https)";
    case limit_kind::command:
      return "at least one; a program with a '/' is relative to the file that contains it";
    case limit_kind::device: return {};
    case limit_kind::session_name: return "1 to 64 letters, digits, '.', '_' and '-', not '.' or '-' first";
    case limit_kind::image_type: return {};
    case limit_kind::listen_address: return "HOST:PORT or empty";
    case limit_kind::variable_names: return "the keys are names of environment variables";
  }
  return {};
}

}  // namespace

std::vector<std::string_view> choices_of(const key_info& key) {
  return key.limits.kind == limit_kind::image_type ? image_types() : key.form.choices;
}

std::string type_text(const key_info& key) {
  std::string text;
  switch (key.form.count) {
    case arity::one:
    case arity::optional: text = element_text(key, false); break;
    case arity::fixed: text = fmt::format("array of {} {}", key.form.length, element_text(key, true)); break;
    case arity::list: text = fmt::format("array of {}", element_text(key, true)); break;
    case arity::one_or_list:
      text = fmt::format("{} or array of {}", element_text(key, false), element_text(key, true));
      break;
    case arity::list_or_word:
      text = fmt::format("{} or array of {}", quoted_list(key.form.choices), element_text(key, true));
      break;
    case arity::map: text = fmt::format("table of {}", element_text(key, true)); break;
  }
  const std::string limits = limit_words(key);
  if (!limits.empty()) text += ", " + limits;
  if (key.form.count == arity::optional)
    text += fmt::format("{} or \"{}\"", limits.empty() ? "" : ",", key.form.absent);
  return text;
}

std::string use_text(const key_info& key) {
  std::string text;
  for (const auto& [decided_by, wanted] : conditions_of(key.use)) {
    text += fmt::format("{}{} is {}", text.empty() ? "only when " : " and ", decided_by, wanted);
  }
  return text;
}

std::string description_of(const key_info& key) {
  const std::string use = use_text(key);
  return use.empty() ? std::string(key.help) : fmt::format("{} ({})", key.help, use);
}

}  // namespace penstock::config_file
