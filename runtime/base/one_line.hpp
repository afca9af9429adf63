// Joins a text of several lines, such as an exception's, into one line that is safe to show in tables, events and labels.
#pragma once

#include "runtime/base/text.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Escapes like printable(). Gives "first; second", and for more than three lines "first ... last".
[[nodiscard]] inline std::string one_line(std::string_view raw) {
  constexpr std::string_view blanks = " \t\r";
  constexpr std::size_t shown_whole = 3;
  std::vector<std::string> lines;
  while (!raw.empty()) {
    std::string_view line = raw.substr(0, raw.find('\n'));
    raw.remove_prefix(std::min(line.size() + 1, raw.size()));
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    line = line.substr(0, line.find_last_not_of(blanks) + 1);  // npos wraps to 0: nothing is left
    if (!line.empty()) lines.push_back(printable(line));
  }
  if (lines.size() > shown_whole) return lines.front() + " ... " + lines.back();
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

}  // namespace penstock
