// Diagnostics as text for people.
#include "runtime/base/text.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/config/diagnostic.hpp"
#include "runtime/config/source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::config_file {
namespace {

constexpr std::size_t shown_columns_max = 140;

/// What a character of a source line looks like.
struct cell {
  std::string shown;
  std::size_t width = 1;
};

struct character_range {
  char32_t first;
  char32_t last;
};

// The blocks of Unicode 15 that terminals show two columns wide, and those of zero width.
// Exceptions within the blocks are ignored, because they would need a table of hundreds of lines.
constexpr std::array wide{
    character_range{0x1100, 0x115f},   character_range{0x2e80, 0x303e},   character_range{0x3041, 0x33ff},
    character_range{0x3400, 0x4dbf},   character_range{0x4e00, 0x9fff},   character_range{0xa000, 0xa4cf},
    character_range{0xac00, 0xd7a3},   character_range{0xf900, 0xfaff},   character_range{0xfe30, 0xfe6f},
    character_range{0xff00, 0xff60},   character_range{0xffe0, 0xffe6},   character_range{0x1f300, 0x1f64f},
    character_range{0x1f680, 0x1f6ff}, character_range{0x1f900, 0x1f9ff}, character_range{0x20000, 0x3fffd},
};
constexpr std::array empty_width{
    character_range{0x0300, 0x036f}, character_range{0x1ab0, 0x1aff}, character_range{0x1dc0, 0x1dff},
    character_range{0x200b, 0x200f}, character_range{0x20d0, 0x20ff}, character_range{0xfe00, 0xfe0f},
};

template <class Ranges>
bool contains(const Ranges& ranges, char32_t character) {
  return std::any_of(ranges.begin(), ranges.end(), [character](const character_range& range) {
    return character >= range.first && character <= range.last;
  });
}

char32_t decoded(std::string_view character) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[i]));
  };
  switch (character.size()) {
    case 2: return (byte(0) & 0x1fU) << 6U | (byte(1) & 0x3fU);
    case 3: return (byte(0) & 0x0fU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU);
    case 4:
      return (byte(0) & 0x07U) << 18U | (byte(1) & 0x3fU) << 12U | (byte(2) & 0x3fU) << 6U |
             (byte(3) & 0x3fU);
    default: return byte(0);
  }
}

std::vector<cell> cells_of(std::string_view line) {
  std::vector<cell> cells;
  while (!line.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(line), 1);
    const std::string_view character = line.substr(0, length);
    line.remove_prefix(length);
    std::string shown = printable(character);
    if (character == "\t") {
      cells.push_back({"    ", 4});
    } else if (shown != character) {
      const std::size_t width = shown.size();
      cells.push_back({std::move(shown), width});
    } else {
      const char32_t code = decoded(character);
      cells.push_back({std::move(shown), contains(wide, code) ? 2U : contains(empty_width, code) ? 0U : 1U});
    }
  }
  return cells;
}

std::size_t width_of(const std::vector<cell>& cells, std::size_t begin, std::size_t end) {
  std::size_t width = 0;
  for (std::size_t i = begin; i < std::min(end, cells.size()); ++i) width += cells[i].width;
  return width;
}

struct palette {
  const char* error = "";
  const char* warning = "";
  const char* frame = "";
  const char* bold = "";
  const char* reset = "";
};

palette palette_for(colour colours) {
  if (colours == colour::off) return {};
  return {"\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m"};
}

class renderer {
 public:
  renderer(const diagnostic& what, const palette& colours) : what_(what), colours_(colours) {
    std::uint32_t last = what.where.line;
    for (const excerpt& other : what.related) last = std::max(last, other.line);
    gutter_ = last == 0 ? 1 : fmt::format("{}", last).size();
  }

  std::string run() {
    const bool is_error = what_.level == severity::error;
    const char* const accent = is_error ? colours_.error : colours_.warning;
    out_ = fmt::format("{}{}{}{}: {}{}\n", accent, is_error ? "error" : "warning", colours_.reset,
                       colours_.bold, printable(what_.message), colours_.reset);
    excerpts(accent);
    if (!what_.help.empty()) {
      if (what_.where.column != 0) out_ += frame("|") + "\n";
      out_ +=
          frame("=") + fmt::format(" {}help{}: {}\n", colours_.bold, colours_.reset, printable(what_.help));
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string frame(std::string_view sign) const {
    return fmt::format("{}{} {}{}", colours_.frame, std::string(gutter_, ' '), sign, colours_.reset);
  }

  [[nodiscard]] static std::string place(const excerpt& where) {
    if (where.line == 0) return printable(where.origin);
    return fmt::format("{}:{}:{}", printable(where.origin), where.line, where.column);
  }

  void excerpts(const char* accent) {
    if (what_.where.origin.empty()) return;
    // Places in the same text are shown together, in the order of its lines.
    std::vector<std::pair<const excerpt*, bool>> together{{&what_.where, true}};
    std::vector<const excerpt*> elsewhere;
    for (const excerpt& other : what_.related) {
      const bool same_text = other.origin == what_.where.origin && other.line != 0 && what_.where.line != 0;
      if (same_text) {
        together.emplace_back(&other, false);
      } else {
        elsewhere.push_back(&other);
      }
    }
    std::stable_sort(together.begin(), together.end(),
                     [](const auto& a, const auto& b) { return a.first->line < b.first->line; });
    arrow("-->", place(what_.where));
    if (what_.where.column != 0) {
      out_ += frame("|") + "\n";
      std::uint32_t before = 0;
      for (const auto& [where, primary] : together) {
        if (before != 0 && where->line > before + 1)
          out_ += fmt::format("{}...{}\n", colours_.frame, colours_.reset);
        lines(*where, before != 0 && where->line == before, primary ? '^' : '-',
              primary ? accent : colours_.frame);
        before = where->line;
      }
    } else if (!what_.where.label.empty()) {
      out_ += frame("=") + " " + printable(what_.where.label) + "\n";
    }
    for (const excerpt* other : elsewhere) {
      arrow(":::", place(*other));
      if (other->column == 0) continue;
      out_ += frame("|") + "\n";
      lines(*other, false, '-', colours_.frame);
    }
  }

  void arrow(std::string_view sign, const std::string& to) {
    out_ += fmt::format("{}{}{}{} {}\n", std::string(gutter_, ' '), colours_.frame, sign, colours_.reset, to);
  }

  /// Prints the line (unless it was just printed) and the carets below it.
  void lines(const excerpt& where, bool again, char mark, const char* accent) {
    const std::vector<cell> cells = cells_of(where.source_line);
    const std::size_t begin = std::min<std::size_t>(where.column - where.source_column, cells.size());
    const std::size_t end = std::min<std::size_t>(begin + where.length, cells.size());
    // A long line is shown from a little before the caret.
    std::size_t first = 0;
    if (width_of(cells, 0, cells.size()) > shown_columns_max) {
      while (first < begin && width_of(cells, first, end) > shown_columns_max / 2) ++first;
      while (first > 0 && width_of(cells, first, begin) < shown_columns_max / 4) --first;
    }
    std::size_t last = first;
    while (last < cells.size() && width_of(cells, first, last + 1) <= shown_columns_max) ++last;
    const bool cut = first > 0 || where.source_column > 1;
    if (!again) {
      std::string text = cut ? "..." : "";
      for (std::size_t i = first; i < last; ++i) text += cells[i].shown;
      if (last < cells.size()) text += "...";
      const std::string number = where.line == 0 ? "" : fmt::format("{}", where.line);
      out_ += fmt::format("{}{:>{}} |{}{}{}\n", colours_.frame, number, gutter_, colours_.reset,
                          text.empty() ? "" : " ", text);
    }
    const std::size_t indent = width_of(cells, first, begin) + (cut ? 3 : 0);
    const std::size_t carets = std::max<std::size_t>(width_of(cells, begin, std::min(end, last)), 1);
    const std::string label = printable(where.label);
    out_ += fmt::format("{} {}{}{}{}{}{}\n", frame("|"), std::string(indent, ' '), accent,
                        std::string(carets, mark), label.empty() ? "" : " ", label, colours_.reset);
  }

  const diagnostic& what_;
  const palette& colours_;
  std::size_t gutter_ = 1;
  std::string out_;
};

}  // namespace

std::string render(const std::vector<diagnostic>& diagnostics, colour colours) {
  const palette chosen = palette_for(colours);
  std::string text;
  for (const diagnostic& one : diagnostics) {
    if (!text.empty()) text += "\n";
    text += renderer(one, chosen).run();
  }
  return text;
}

std::string summary_of(const std::vector<diagnostic>& diagnostics) {
  const auto errors = std::count_if(diagnostics.begin(), diagnostics.end(),
                                    [](const diagnostic& one) { return one.level == severity::error; });
  const auto warnings = static_cast<std::ptrdiff_t>(diagnostics.size()) - errors;
  const auto counted = [](std::ptrdiff_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  if (warnings == 0) return counted(errors, "error");
  if (errors == 0) return counted(warnings, "warning");
  return counted(errors, "error") + ", " + counted(warnings, "warning");
}

}  // namespace penstock::config_file
