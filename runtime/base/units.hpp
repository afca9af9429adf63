// Sizes and times with their units: parsing "64MiB" and "250ms", and printing them for people.
#pragma once

#include "runtime/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;
inline constexpr std::uint64_t GiB = 1024 * MiB;

using std::chrono::nanoseconds;

/// Rounds up to a multiple of `step`, which must be > 0 but need not be a power of two.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) noexcept {
  return (value + step - 1) / step * step;
}

/// "64MiB", "1.5GiB", "4096B", "10MB": a number and one of B, KiB, MiB, GiB, TiB, KB, MB, GB, TB.
/// Refuses a bare number, a negative one, an unknown unit and anything beyond 2^63 - 1 bytes.
result<std::uint64_t> parse_bytes(std::string_view text);

/// "250ms", "1.5s", "10m", "2h", "100us", "5ns", "1d". Refuses what parse_bytes refuses.
result<nanoseconds> parse_duration(std::string_view text);

/// "64 MiB", "1.5 GiB", "812 B": three significant digits at most, binary units.
std::string bytes_for_people(std::uint64_t bytes);
/// "250 ms", "1.5 s", "2 m 5 s".
std::string duration_for_people(nanoseconds time);

/// The shortest text that parse_bytes / parse_duration reads back to exactly the same value.
std::string bytes_as_config(std::uint64_t bytes);
std::string duration_as_config(nanoseconds time);

}  // namespace penstock
