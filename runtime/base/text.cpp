#include "runtime/base/text.hpp"

#include "runtime/base/utf8.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <vector>

namespace penstock {

std::string printable(std::string_view raw) {
  std::string shown;
  shown.reserve(raw.size());
  while (!raw.empty()) {
    const std::size_t length = utf8_length(raw);
    const auto lead = static_cast<std::uint8_t>(raw.front());
    // Control characters can move the cursor and change colours: C0, DEL, and C1 (U+0080..U+009F, in UTF-8 c2 80..c2 9f).
    const bool control = lead < 0x20 || lead == 0x7f ||
                         (length == 2 && lead == 0xc2 && static_cast<std::uint8_t>(raw[1]) < 0xa0);
    if (length == 0 || control) {
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i) {
        shown += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(raw[i]));
      }
    } else {
      shown += raw.substr(0, length);
    }
    raw.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown;
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  constexpr std::string_view dots = "...";
  std::size_t keep = limit > dots.size() ? limit - dots.size() : 0;
  while (keep > 0 && (static_cast<std::uint8_t>(text[keep]) & 0xc0U) == 0x80U) --keep;
  return std::string(text.substr(0, keep)).append(dots.substr(0, limit));
}

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Optimal string alignment; keeps only three rows of the usual table.
  std::vector<std::size_t> before(to.size() + 1);
  std::vector<std::size_t> above(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replace = above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[to.size()];
}

}  // namespace penstock
