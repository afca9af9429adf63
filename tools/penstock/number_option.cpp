#include "tools/penstock/number_option.hpp"

#include "runtime/base/number.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/core.h>

namespace penstock::cli {

std::string trouble_with_number(const std::string& text, number_range range) {
  const auto value = whole_number<std::uint64_t>(text);
  if (value && *value >= range.least && *value <= range.most) return {};
  return fmt::format("'{}': must be a whole number from {} to {}", printable(text), range.least, range.most);
}

result<std::chrono::nanoseconds> parse_time_option(const std::string& option, const std::string& text,
                                                   std::chrono::nanoseconds least,
                                                   std::chrono::nanoseconds most) {
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  const auto time = parse_duration(plain ? text + "s" : text);
  if (time && *time >= least && *time <= most) return *time;
  return refuse(errc::usage, "{} {}: must be a time from {} to {}, such as 90s or 2m; a number means seconds",
                option, printable(text), duration_for_people(least), duration_for_people(most));
}

CLI::Option* takes_whole_number(CLI::Option* option, number_range range) {
  return option->type_name("N")->transform(CLI::Validator(
      [range](std::string& text) {
        std::string trouble = trouble_with_number(text, range);
        // Without leading zeros, which CLI11 would read as octal.
        if (trouble.empty()) text = std::to_string(*whole_number<std::uint64_t>(text));
        return trouble;
      },
      ""));
}

CLI::Option* takes_whole_number_or(CLI::Option* option, number_range range, std::string word) {
  return option->type_name("N")->transform(CLI::Validator(
      [range, word = std::move(word)](std::string& text) {
        if (text == word) return std::string();
        std::string trouble = trouble_with_number(text, range);
        if (!trouble.empty()) trouble += fmt::format(", or {}", word);
        return trouble;
      },
      ""));
}

}  // namespace penstock::cli
