#include "tools/penstock/jobs/line_rules.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "tools/penstock/jobs/job_outcome.hpp"

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

constexpr std::size_t shown_of_a_reason = 200;
constexpr std::size_t longest_in_output = 64 * KiB;

/// The library's message, without its name and number.
std::string why_no_json(std::string_view text) {
  try {
    [[maybe_unused]] const auto value = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    std::string_view words = e.what();
    if (const std::size_t end = words.find("] "); end != std::string_view::npos) words.remove_prefix(end + 2);
    return shortened(printable(words), shown_of_a_reason);
  }
  return {};
}

}  // namespace

std::string why_bad(line_rule rule, std::string_view line) {
  if (rule == line_rule::json)
    return nlohmann::json::accept(line) ? std::string() : "is not JSON: " + why_no_json(line);
  return line.find('\0') == std::string_view::npos
             ? ""
             : "contains a NUL byte, which an argument of a program cannot contain";
}

std::string input_as_json(line_rule rule, std::string_view line) {
  if (line.size() > longest_in_output) return "null";
  return rule == line_rule::json ? json_of_bytes(line) : json_string(line);
}

}  // namespace penstock::cli
