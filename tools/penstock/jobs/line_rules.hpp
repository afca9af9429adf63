// The requirements on a line of `penstock map`'s input. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::cli {

enum class line_rule : std::uint8_t {
  json,  ///< each line is a JSON value
  text,  ///< each line is an argument of a program, which cannot contain a NUL byte
};
enum class bad_line_rule : std::uint8_t { fail, skip };

/// "is not JSON: ..": what is wrong with a line; empty: nothing.
[[nodiscard]] std::string why_bad(line_rule rule, std::string_view line);

/// The line for the output: unchanged if it must be JSON, otherwise as a JSON string. "null" for a line of
/// more than 64 KiB, so that large arguments are not written again.
[[nodiscard]] std::string input_as_json(line_rule rule, std::string_view line);

}  // namespace penstock::cli
