// What is wrong with a config, where, and what to write instead: the result of every check here.
// The CLI and the public load_config show it to people (render), and `--json` prints it for programs (to_json).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::config_file {

enum class severity : std::uint8_t { warning, error };

/// A place in a text together with its line, so that it can be shown after the text is freed.
struct excerpt {
  std::string origin;  ///< "photos.toml", "--set", "environment"; for a config built in code the key's path
  std::uint32_t line = 0;  ///< counted from 1; 0: the origin has no lines
  /// Counted from 1, in characters (code points; a tab is one). 0: the diagnostic is about the whole origin.
  std::uint32_t column = 0;
  std::uint32_t length = 0;         ///< in characters, within this line
  std::uint32_t source_column = 1;  ///< column of the first character of source_line; more than 1 if a very long line was cut
  std::string source_line;
  std::string label;  ///< a few words shown after the caret

  bool operator==(const excerpt&) const = default;
};

struct diagnostic {
  severity level = severity::error;
  std::string message;
  std::string key;  ///< path of the key in question ("loader.workers"); empty for syntax errors
  excerpt where;
  std::vector<excerpt> related;  ///< the other place of a contradiction or a duplicate
  std::string help;              ///< a sentence below the excerpt

  bool operator==(const diagnostic&) const = default;
};

enum class colour : std::uint8_t { off, on };

/// For people, in the style of rustc: message, place, line, caret. Ends with a newline; empty for no
/// diagnostics. Control characters and bytes that are not UTF-8 are shown as \xNN,
/// and tabs as four spaces. Of a long line, only the part around the caret is shown.
std::string render(const std::vector<diagnostic>& diagnostics, colour colours);

/// A JSON array with one object for each diagnostic: {"severity", "message", "key", "file", "line", "column",
/// "length", "label", "source_column", "source_line", "help", "related": [{"file", ...}]}; what is unknown is
/// null. Always valid UTF-8.
std::string to_json(const std::vector<diagnostic>& diagnostics);

/// "2 errors, 1 warning".
std::string summary_of(const std::vector<diagnostic>& diagnostics);

}  // namespace penstock::config_file
