#include "tools/penstock/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace penstock::cli {
namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t narrowest = 6;  // minimum width of a shortened column
constexpr std::size_t narrowest_wrapped = 16;  // minimum width of a column whose cells are wrapped, and of hanging text
constexpr std::size_t small_indent = 4;     // for text that has no space to the right of its column

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

/// Leaves out optional columns, the last one first. Then shortens columns that give way, the widest first, so that no column shrinks to
/// almost nothing next to a wide one.
void fit(layout& table, const std::vector<table_column>& columns, std::size_t width) {
  while (table.line() > width) {
    const auto last = std::find_if(table.shown.rbegin(), table.shown.rend(),
                                   [&](std::size_t i) { return columns[i].optional; });
    if (last == table.shown.rend()) break;
    table.shown.erase(std::next(last).base());
  }
  while (table.line() > width) {
    const auto can_give = [&](std::size_t i) {
      return (columns[i].gives_way && table.widths[i] > narrowest) || (columns[i].wraps && table.widths[i] > narrowest_wrapped);
    };
    const auto space = [&](std::size_t i) { return can_give(i) ? table.widths[i] : 0; };
    const auto widest = std::ranges::max_element(table.shown, {}, space);
    if (widest == table.shown.end() || !can_give(*widest)) break;
    --table.widths[*widest];
  }
}

/// Where a first line of `width` columns ends: between words or, if a single word is longer, inside it. Its indentation is no word.
std::size_t end_of_line(std::string_view text, std::size_t width) {
  const std::size_t words = text.find_first_not_of(' ');
  std::size_t columns = 0;
  std::size_t blank = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (continues(text[at])) continue;
    if (text[at] == ' ' && at > words) blank = at;
    if (columns++ == width) return blank > 0 ? blank : at;
  }
  return text.size();
}

/// `first`: width of the first line in columns; `others`: width of each further line. Both at least 1.
std::vector<std::string> lines_of(std::string_view text, std::size_t first, std::size_t others) {
  std::vector<std::string> lines;
  do {
    const std::size_t end = end_of_line(text, lines.empty() ? first : others);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  } while (!text.empty());
  return lines;
}

std::string joined(const std::vector<std::string>& lines, std::size_t indent) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  return out;
}

/// One row: several lines if a cell is wrapped.
std::string lines_of_row(const std::vector<table_column>& columns, const layout& table,
                         const std::vector<std::string>& cells) {
  std::vector<std::vector<std::string>> parts;
  std::size_t height = 1;
  for (const std::size_t i : table.shown) {
    const std::size_t width = table.widths[i];
    if (columns[i].wraps && width > 0) {
      parts.push_back(lines_of(cells[i], width, width));
    } else {
      parts.push_back({columns[i].keeps_end ? cut_to_end(cells[i], width) : cells[i]});
    }
    height = std::max(height, parts.back().size());
  }
  std::string out;
  for (std::size_t n = 0; n < height; ++n) {
    std::string line;
    for (std::size_t c = 0; c < parts.size(); ++c) {
      const std::size_t i = table.shown[c];
      if (c > 0) line.append(gap, ' ');
      line += padded(n < parts[c].size() ? parts[c][n] : "", table.widths[i], columns[i].side);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
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

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (width == 0) return std::string(text);
  return joined(lines_of(text, width, std::max(width, indent + narrowest_wrapped) - indent), indent);
}

std::string hanging(std::string_view text, std::size_t width, std::size_t column) {
  if (width == 0) return std::string(text);
  if (width >= column + narrowest_wrapped) return joined(lines_of(text, width - column, width - column), column);
  const std::size_t left = std::max(width, small_indent + narrowest_wrapped) - small_indent;
  return "\n" + std::string(small_indent, ' ') + joined(lines_of(text, left, left), small_indent);
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
    if (columns[i].shown) table.shown.push_back(i);
    titles.push_back(columns[i].title);
  }
  if (width > 0) fit(table, columns, width);
  std::string out = lines_of_row(columns, table, titles);
  for (const auto& row : rows) out += lines_of_row(columns, table, row);
  return out;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string rate_text(double rate) { return rate >= 100 ? fmt::format("{:.0f}", rate) : fmt::format("{:.1f}", rate); }

}  // namespace penstock::cli
