#include "runtime/base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

namespace penstock {
namespace {

struct unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::array byte_units{
    unit{"TiB", 1024 * GiB},
    unit{"TB", 1'000'000'000'000},
    unit{"GiB", GiB},
    unit{"GB", 1'000'000'000},
    unit{"MiB", MiB},
    unit{"MB", 1'000'000},
    unit{"KiB", KiB},
    unit{"KB", 1000},
    unit{"B", 1},
};

constexpr std::array time_units{
    unit{"d", 86'400'000'000'000},
    unit{"h", 3'600'000'000'000},
    unit{"m", 60'000'000'000},
    unit{"s", 1'000'000'000},
    unit{"ms", 1'000'000},
    unit{"us", 1000},
    unit{"ns", 1},
};

std::string names_of(std::span<const unit> units) {
  std::string list;
  for (const unit& u : units) list += fmt::format("{}{}", list.empty() ? "" : ", ", u.name);
  return list;
}

result<std::uint64_t> parse(std::string_view text, std::span<const unit> units, std::string_view what,
                            std::string_view example) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (status != std::errc{} || !std::isfinite(number)) {
    return refuse(errc::config, "'{}' is not a {}: write a number and a unit, as in \"{}\"", text, what,
                  example);
  }
  if (number < 0) return refuse(errc::config, "a {} cannot be negative: '{}'", what, text);
  std::string_view name(rest, static_cast<std::size_t>(end - rest));
  while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  if (name.empty()) {
    return refuse(errc::config, "'{}' has no unit: add one of {}, as in \"{}\"", text, names_of(units),
                  example);
  }
  for (const unit& u : units) {
    if (u.name != name) continue;
    // Whole numbers stay exact; only fractions go through floating point.
    std::uint64_t whole = 0;
    const auto exact = std::from_chars(text.data(), rest, whole);
    const auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (exact.ec == std::errc{} && exact.ptr == rest) {
      if (whole > limit / u.factor) return refuse(errc::config, "'{}' is too large", text);
      return whole * u.factor;
    }
    const double scaled = number * static_cast<double>(u.factor);
    if (scaled >= static_cast<double>(limit)) return refuse(errc::config, "'{}' is too large", text);
    return static_cast<std::uint64_t>(std::llround(scaled));
  }
  return refuse(errc::config, "'{}' is not a unit of a {}: write one of {}", name, what, names_of(units));
}

std::string as_config(std::uint64_t value, std::span<const unit> units, std::string_view smallest) {
  if (value == 0) return fmt::format("0{}", smallest);
  for (const unit& u : units) {
    if (value % u.factor == 0) return fmt::format("{}{}", value / u.factor, u.name);
  }
  return fmt::format("{}{}", value, smallest);
}

}  // namespace

result<std::uint64_t> parse_bytes(std::string_view text) {
  return parse(text, byte_units, "size", "64MiB");
}

result<nanoseconds> parse_duration(std::string_view text) {
  return parse(text, time_units, "duration", "250ms").map([](std::uint64_t ns) {
    return nanoseconds(static_cast<std::int64_t>(ns));
  });
}

/// Prints three digits. The next unit begins where rounding would print 1024: 1023.9 KiB is "1.00 MiB", not "1024
/// KiB".
std::string bytes_for_people(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t step = 1;
  while (value >= 1023.5 && step + 1 < names.size()) {
    value /= 1024;
    ++step;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, names[step]);
}

std::string duration_for_people(nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  if (seconds < 0) return fmt::format("-{}", duration_for_people(-time));
  if (seconds < 999.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 999.5e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} m {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} m", whole / 3600, whole / 60 % 60);
}

std::string bytes_as_config(std::uint64_t bytes) {
  constexpr std::array binary{unit{"TiB", 1024 * GiB}, unit{"GiB", GiB}, unit{"MiB", MiB}, unit{"KiB", KiB}};
  return as_config(bytes, binary, "B");
}

std::string duration_as_config(nanoseconds time) {
  constexpr std::array usual{unit{"h", 3'600'000'000'000}, unit{"m", 60'000'000'000},
                             unit{"s", 1'000'000'000}, unit{"ms", 1'000'000}, unit{"us", 1000}};
  const auto ns = static_cast<std::uint64_t>(time.count());
  return ns == 0 ? "0s" : as_config(ns, usual, "ns");
}

}  // namespace penstock
