// Text tables: columns as wide as needed, lines never longer than the terminal. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

enum class column_side : unsigned char { left, right };

struct table_column {
  std::string title;
  column_side side = column_side::left;
  bool gives_way = false;  ///< shortened when the line gets too long
  bool optional = false;   ///< left out before any column is shortened
  bool keeps_end = false;  ///< a shortened cell keeps its end, which is what distinguishes paths
  bool wraps = false;      ///< like gives_way, but cells continue on further lines instead of being cut
  bool shown = true;       ///< false: left out at any width
};

/// Complete lines. `width`: the terminal's columns; 0 for no limit.
[[nodiscard]] std::string text_table(const std::vector<table_column>& columns,
                                     const std::vector<std::vector<std::string>>& rows, std::size_t width);

/// The number of columns of UTF-8 text, counting every character as one.
[[nodiscard]] std::size_t columns_of(std::string_view text) noexcept;
/// Cuts text to this many columns; ".." marks a cut.
[[nodiscard]] std::string cut_to(std::string_view text, std::size_t columns);
/// Like cut_to(), but cuts the beginning.
[[nodiscard]] std::string cut_to_end(std::string_view text, std::size_t columns);
/// Like cut_to, for a line on a terminal with `width` columns; 0 for no limit.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t width);
/// Breaks text between words into lines of at most `width` columns (0: no limit), and words that are longer than a line. The lines after
/// the first begin with `indent` spaces. The last line has no line break.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);
/// Like wrapped(), for text that begins after `column` columns of its line and stays to the right of them. If there is too
/// little space, it begins on the next line.
[[nodiscard]] std::string hanging(std::string_view text, std::size_t width, std::size_t column);
/// Pads or cuts text to exactly this many columns.
[[nodiscard]] std::string padded(std::string_view text, std::size_t columns,
                                 column_side side = column_side::left);

/// The lines of a text, without their line feeds.
[[nodiscard]] std::vector<std::string> lines_in(const std::string& text);

/// "12345", "1234", "12.3": four digits are enough for a rate.
[[nodiscard]] std::string rate_text(double rate);

}  // namespace penstock::cli
