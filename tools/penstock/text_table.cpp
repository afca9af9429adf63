#include "tools/penstock/text_table.hpp"

#include <algorithm>
#include <string_view>

namespace penstock::cli {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t narrowest = 6;  // the minimum width of a column that is cut

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

std::string line_of(const std::vector<table_column>& columns, const std::vector<std::size_t>& widths,
                    const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) line.append(gap, ' ');
    line += padded(cells[i], widths[i], columns[i].side);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::size_t columns_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues(c); }));
}

std::string cut_to(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  const std::string_view sign = std::string_view("..").substr(0, columns);
  std::size_t end = 0;
  for (std::size_t left = columns - sign.size(); end < text.size(); ++end) {
    if (continues(text[end])) continue;
    if (left-- == 0) break;
  }
  return std::string(text.substr(0, end)) + std::string(sign);
}

std::string fitted(std::string_view text, std::size_t width) {
  return width == 0 ? std::string(text) : cut_to(text, width);
}

std::string padded(std::string_view text, std::size_t columns, column_side side) {
  std::string out = cut_to(text, columns);
  const std::string blanks(columns - std::min(columns, columns_of(out)), ' ');
  return side == column_side::left ? out + blanks : blanks + out;
}

std::string text_table(const std::vector<table_column>& columns,
                       const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t widest = columns_of(columns[i].title);
    for (const auto& row : rows) widest = std::max(widest, columns_of(row[i]));
    widths.push_back(widest);
    titles.push_back(columns[i].title);
  }
  std::size_t line = gap * (columns.size() - 1);
  for (const std::size_t w : widths) line += w;
  for (std::size_t i = columns.size(); i-- > 0 && width > 0 && line > width;) {
    if (!columns[i].gives_way || widths[i] <= narrowest) continue;
    const std::size_t less = std::min(line - width, widths[i] - narrowest);
    widths[i] -= less;
    line -= less;
  }
  std::string out = line_of(columns, widths, titles);
  for (const auto& row : rows) out += line_of(columns, widths, row);
  return out;
}

}  // namespace penstock::cli
