// Whole numbers and times on the command line. CLI11 alone reads "-1" as 2^64 - 1, "010" as 8 and 2^64 as 2^64 - 1.
// Used by every verb that takes a number.
#pragma once

#include "runtime/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace CLI {
class Option;
}

namespace penstock::cli {

/// The largest count of batches, faults or samples: enough for any stream (30,000 years at one per second),
/// and small enough that its product with a batch size (at most 2^16) or a number of ranks (2^20) fits 64
/// bits.
inline constexpr std::uint64_t count_max = 1'000'000'000'000;

struct number_range {
  std::uint64_t least = 0;
  std::uint64_t most = count_max;
};

/// Empty for decimal digits with a value in the range; otherwise the reason: "'-1': must be a whole number
/// from 0 to 7".
[[nodiscard]] std::string trouble_with_number(const std::string& text, number_range range);

/// Parses the value of an option like --seconds: "90s", "2m", or a number of seconds. Refuses (errc::usage)
/// anything else, and times outside the range.
[[nodiscard]] result<std::chrono::nanoseconds> parse_time_option(const std::string& option,
                                                                 const std::string& text,
                                                                 std::chrono::nanoseconds least,
                                                                 std::chrono::nanoseconds most);

/// Makes the option accept whole numbers in this range; anything else is a usage error. For options stored in
/// an integer type that holds the range.
CLI::Option* takes_whole_number(CLI::Option* option, number_range range);
/// Like takes_whole_number(), but also accepts this word.
CLI::Option* takes_whole_number_or(CLI::Option* option, number_range range, std::string word);

}  // namespace penstock::cli
