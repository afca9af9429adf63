#include "tools/penstock/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace penstock::cli {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t narrowest = 6;  // minimum width of a shortened column

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

struct layout {
  std::vector<std::size_t> shown;   // column numbers
  std::vector<std::size_t> widths;  // one per column

  [[nodiscard]] std::size_t line() const {
    std::size_t sum = shown.empty() ? 0 : gap * (shown.size() - 1);
    for (const std::size_t i : shown) sum += widths[i];
    return sum;
  }
};

/// Leaves out optional columns, the last one first. Then shortens those that give way, the widest first, so
/// that no column shrinks to almost nothing next to a wide one.
void fit(layout& table, const std::vector<table_column>& columns, std::size_t width) {
  while (table.line() > width) {
    const auto last = std::find_if(table.shown.rbegin(), table.shown.rend(),
                                   [&](std::size_t i) { return columns[i].optional; });
    if (last == table.shown.rend()) break;
    table.shown.erase(std::next(last).base());
  }
  while (table.line() > width) {
    const auto can_give = [&](std::size_t i) { return columns[i].gives_way && table.widths[i] > narrowest; };
    const auto space = [&](std::size_t i) { return can_give(i) ? table.widths[i] : 0; };
    const auto widest = std::ranges::max_element(table.shown, {}, space);
    if (widest == table.shown.end() || !can_give(*widest)) break;
    --table.widths[*widest];
  }
}

std::string line_of(const std::vector<table_column>& columns, const layout& table,
                    const std::vector<std::string>& cells) {
  std::string line;
  for (const std::size_t i : table.shown) {
    if (i != table.shown.front()) line.append(gap, ' ');
    const std::string cell = columns[i].keeps_end ? cut_to_end(cells[i], table.widths[i]) : cells[i];
    line += padded(cell, table.widths[i], columns[i].side);
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

std::string cut_to_end(std::string_view text, std::size_t columns) {
  const std::size_t all = columns_of(text);
  if (all <= columns) return std::string(text);
  const std::string_view sign = std::string_view("..").substr(0, columns);
  std::size_t begin = 0;
  for (std::size_t gone = all - (columns - sign.size()); begin < text.size(); ++begin) {
    if (continues(text[begin])) continue;
    if (gone-- == 0) break;
  }
  return std::string(sign) + std::string(text.substr(begin));
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
  layout table;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t widest = columns_of(columns[i].title);
    for (const auto& row : rows) widest = std::max(widest, columns_of(row[i]));
    table.widths.push_back(widest);
    table.shown.push_back(i);
    titles.push_back(columns[i].title);
  }
  if (width > 0) fit(table, columns, width);
  std::string out = line_of(columns, table, titles);
  for (const auto& row : rows) out += line_of(columns, table, row);
  return out;
}

std::string rate_text(double rate) { return rate >= 100 ? fmt::format("{:.0f}", rate) : fmt::format("{:.1f}", rate); }

}  // namespace penstock::cli
