// Whole numbers of the command line. CLI11 alone takes "-1" for 2^64 - 1, "010" for 8 and 2^64 for 2^64 - 1. Used by
// every verb that takes a number.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class Option;
}

namespace penstock::cli {

/// Of batches, faults and samples: large enough for every stream (30,000 years at one a second), and small enough that
/// the product with a batch size (2^16 at most) or a number of ranks (2^20) fits into 64 bits.
inline constexpr std::uint64_t count_max = 1'000'000'000'000;

struct number_range {
  std::uint64_t least = 0;
  std::uint64_t most = count_max;
};

/// Empty for decimal digits whose value lies in the range; else what is wrong, as in "'-1': it has to be a whole
/// number from 0 to 7".
[[nodiscard]] std::string trouble_with_number(const std::string& text, number_range range);

/// The option takes whole numbers of this range; all else is a usage error with a sentence. For options that are
/// stored in an integer type which holds the range.
CLI::Option* takes_whole_number(CLI::Option* option, number_range range);

}  // namespace penstock::cli
