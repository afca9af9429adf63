// Diagnostics as JSON for programs.
#include "runtime/base/text.hpp"
#include "runtime/config/diagnostic.hpp"

#include <nlohmann/json.hpp>

namespace penstock::config_file {
namespace {

using json = nlohmann::ordered_json;

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(printable(text));
}
json number_or_null(std::uint32_t number) {
  return number == 0 ? json() : json(number);
}

json place(const excerpt& where) {
  // Tabs are not replaced here, because length and column count the characters of this line.
  std::string line = where.source_line;
  return {{"file", text_or_null(where.origin)},
          {"line", number_or_null(where.line)},
          {"column", number_or_null(where.column)},
          {"length", number_or_null(where.length)},
          {"label", text_or_null(where.label)},
          {"source_column", where.column == 0 ? json() : json(where.source_column)},
          {"source_line", where.column == 0 ? json() : json(std::move(line))}};
}

}  // namespace

std::string to_json(const std::vector<diagnostic>& diagnostics) {
  json all = json::array();
  for (const diagnostic& one : diagnostics) {
    json made{{"severity", one.level == severity::error ? "error" : "warning"},
              {"message", printable(one.message)},
              {"key", text_or_null(one.key)}};
    made.update(place(one.where));
    made["help"] = text_or_null(one.help);
    json related = json::array();
    for (const excerpt& other : one.related) related.push_back(place(other));
    made["related"] = std::move(related);
    all.push_back(std::move(made));
  }
  // Each byte that is not UTF-8 becomes one U+FFFD.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace penstock::config_file
