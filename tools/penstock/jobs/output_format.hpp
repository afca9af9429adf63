// How the outcome of a job is written: as a line of JSON, or as what the command or function itself gave. Pure.
#pragma once

#include "tools/penstock/jobs/line_rules.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::cli {

enum class output_format : std::uint8_t {
  json,
  raw,     ///< stdout of the command, or the function's result, byte for byte
  tagged,  ///< the same, each line after the input line and a tab
};

struct written_outcome {
  std::string out;  ///< for the output
  std::string err;  ///< for stderr: what the command wrote there; empty for JSON
  /// raw, tagged: bytes of its stdout that were not kept
  std::uint64_t missing = 0;
};

/// `line` is a line as output_line() writes it, of this run or from the journal of an earlier one. `lines`: text for commands.
[[nodiscard]] written_outcome written_as(output_format format, line_rule lines, std::string&& line);

/// Standard base64. Decoding drops what is behind the first invalid character.
[[nodiscard]] std::string base64(std::string_view bytes);
[[nodiscard]] std::string from_base64(std::string_view text);

}  // namespace penstock::cli
