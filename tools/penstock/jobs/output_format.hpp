// Writes the outcome of a job: as a line of JSON, or as the plain output of the command or function. Pure.
#pragma once

#include "tools/penstock/jobs/line_rules.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::cli {

enum class output_format : std::uint8_t {
  json,
  raw,     ///< stdout of the command, or the function's result, byte for byte
  tagged,  ///< like raw, but each line follows the input line and a tab
};

struct written_outcome {
  std::string out;  ///< text for the output
  std::string err;  ///< for stderr: what the command wrote to its stderr; empty for JSON
  /// raw, tagged: bytes of stdout that were dropped
  std::uint64_t missing = 0;
};

/// `line` is a line written by output_line(), in this run or in an earlier one with the same journal.
/// `lines`: line_rule::text if the jobs are commands.
[[nodiscard]] written_outcome written_as(output_format format, line_rule lines, std::string&& line);

/// Standard base64. Decoding ignores everything from the first invalid character on.
[[nodiscard]] std::string base64(std::string_view bytes);
[[nodiscard]] std::string from_base64(std::string_view text);

}  // namespace penstock::cli
