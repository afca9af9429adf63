// Maps each byte of a string's value to its place in the source text, so that a message can point into the
// middle of a string.
#include "runtime/config/document.hpp"

#include <array>
#include <cctype>

namespace penstock::config_file {
namespace {

/// How many bytes of UTF-8 the code point of a \u escape needs.
std::size_t utf8_size(unsigned long code_point) noexcept {
  if (code_point < 0x80) return 1;
  if (code_point < 0x800) return 2;
  return code_point < 0x10000 ? 3 : 4;
}

/// The length of the line break at `at` in bytes ("\n" or "\r\n"); 0 if there is none.
std::size_t line_break(std::string_view text, std::size_t at) noexcept {
  if (text.substr(at).starts_with("\r\n")) return 2;
  return text.substr(at).starts_with('\n') ? 1 : 0;
}

}  // namespace

std::vector<std::size_t> literal_offsets(std::string_view written) {
  std::vector<std::size_t> offsets;
  const char quote = written.empty() ? '\0' : written.front();
  std::size_t quotes = 0;
  if (quote == '"' || quote == '\'') {
    const std::array<char, 3> three{quote, quote, quote};
    quotes = written.size() >= 6 && written.starts_with(std::string_view(three.data(), 3)) ? 3 : 1;
  }
  const bool escapes = quote == '"' && quotes > 0;
  const std::size_t end = written.size() >= 2 * quotes ? written.size() - quotes : written.size();
  std::size_t at = quotes;
  if (quotes == 3) at += line_break(written, at);
  while (at < end) {
    if (!escapes || written[at] != '\\' || at + 1 >= end) {
      offsets.push_back(at++);
      continue;
    }
    const char escaped = written[at + 1];
    if (escaped == 'u' || escaped == 'U') {
      const std::size_t digits = escaped == 'u' ? 4 : 8;
      const std::string code(written.substr(at + 2, digits));
      offsets.insert(offsets.end(), utf8_size(std::strtoul(code.c_str(), nullptr, 16)), at);
      at += 2 + digits;
    } else if (std::isspace(static_cast<unsigned char>(escaped)) != 0) {
      // A backslash at the end of a line removes all white space up to the next character.
      ++at;
      while (at < end && std::isspace(static_cast<unsigned char>(written[at])) != 0) ++at;
    } else {
      offsets.push_back(at);
      at += 2;
    }
  }
  offsets.push_back(end);
  return offsets;
}

}  // namespace penstock::config_file
