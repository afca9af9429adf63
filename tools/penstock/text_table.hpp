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
  bool gives_way = false;  ///< cut when the line gets too long
  bool optional = false;   ///< left out before anything is cut
  bool keeps_end = false;  ///< of a cell that is cut: what tells paths apart stands at their end
};

/// Lines with their ends. `width`: columns of the terminal; 0 for no limit.
[[nodiscard]] std::string text_table(const std::vector<table_column>& columns,
                                     const std::vector<std::vector<std::string>>& rows, std::size_t width);

/// How many columns UTF-8 text takes, counting every character as one.
[[nodiscard]] std::size_t columns_of(std::string_view text) noexcept;
/// Cuts text to this many columns; ".." marks a cut.
[[nodiscard]] std::string cut_to(std::string_view text, std::size_t columns);
/// The same, but cuts the beginning.
[[nodiscard]] std::string cut_to_end(std::string_view text, std::size_t columns);
/// The same for lines of a terminal. `width`: its columns; 0 for no limit.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t width);
/// Pads or cuts text to exactly this many columns.
[[nodiscard]] std::string padded(std::string_view text, std::size_t columns,
                                 column_side side = column_side::left);

}  // namespace penstock::cli
