// A text that settings were read from, and places in it: byte offsets internally, lines and columns in
// messages. `complaints` collects diagnostics and sorts them in the order of the texts.
#pragma once

#include "runtime/config/diagnostic.hpp"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace penstock::config_file {

enum class source_kind : std::uint8_t { file, include, environment, override };

struct text_position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;  ///< in characters
};

/// Immutable. Spans point to it, so its address must not change during the load.
class source {
 public:
  /// `folder` is absolute: the value of ${cfg:dir}, and the base of relative paths in this text. `order` is
  /// the text's place among all texts of a load. A byte order mark is dropped.
  source(source_kind kind, std::string name, std::string text, std::filesystem::path folder,
         std::uint32_t order);

  [[nodiscard]] source_kind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] std::uint32_t order() const noexcept { return order_; }
  [[nodiscard]] bool has_lines() const noexcept;

  [[nodiscard]] text_position position_of(std::size_t offset) const;
  /// The offset of a character, or of the end of its line if the line is shorter.
  [[nodiscard]] std::size_t offset_of(text_position position) const;
  /// The text of a line, without its line end.
  [[nodiscard]] std::string_view line_at(std::size_t offset) const;

 private:
  [[nodiscard]] std::size_t line_index(std::size_t offset) const;
  [[nodiscard]] std::size_t characters_before(std::size_t offset) const;

  source_kind kind_;
  std::string name_;
  std::string text_;
  std::filesystem::path folder_;
  std::uint32_t order_;
  std::vector<std::size_t> line_begins_;
  std::vector<std::size_t> checkpoints_;  ///< where every 64th character begins, because lines may be a megabyte long
};

/// Bytes [begin, end) of a source. Borrows it.
struct span {
  /// If `begin` has this value, the span means the whole source.
  static constexpr std::size_t everything = static_cast<std::size_t>(-1);
  const source* in = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::string_view text() const;
};

excerpt excerpt_of(span place, std::string label = {});

/// A diagnostic in the making. The default initialisers allow designated initialisation without warnings
/// about missing members.
struct complaint {
  severity level = severity::error;
  std::string key = {};
  span at = {};
  std::string message = {};
  std::string label = {};
  std::string help = {};
  std::vector<excerpt> related = {};
};

class complaints {
 public:
  void add(complaint one);
  [[nodiscard]] bool has_errors() const noexcept { return errors_ > 0; }
  [[nodiscard]] std::size_t error_count() const noexcept { return errors_; }
  /// Whether further complaints are only counted. The caller then need not format them.
  [[nodiscard]] bool full() const noexcept;
  /// Sorted by text and place; identical complaints about one place appear once.
  [[nodiscard]] std::vector<diagnostic> sorted() const;

 private:
  struct entry {
    std::uint32_t order;
    std::size_t offset;
    diagnostic what;
  };
  std::vector<entry> entries_;
  std::set<std::tuple<std::uint32_t, std::size_t, std::string>> said_;
  std::size_t errors_ = 0;
};

/// Complaints beyond this number are counted but not kept; they usually share a cause.
inline constexpr std::size_t complaints_max = 500;

/// Offset of the first byte that is not UTF-8; npos if there is none.
std::size_t first_invalid_utf8(std::string_view text) noexcept;

}  // namespace penstock::config_file
