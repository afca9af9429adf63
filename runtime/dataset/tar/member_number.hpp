// The whole number in a member such as .cls. Pure. Used by the tar dataset and, so that the classes of all samples are
// known before any is loaded, by the index of shards.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace penstock {

/// Members beyond this size are not read for the index.
inline constexpr std::uint64_t number_text_max = 64;

/// Stores the number in `value` and returns std::errc{}, or an error. Blanks, line breaks and NULs may surround
/// the number, and a '+' may precede it.
inline std::errc number_of_text(std::string_view text, std::int64_t& value) noexcept {
  constexpr std::string_view blanks(" \t\r\n\0", 5);
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return std::errc::invalid_argument;
  text = text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc{} && end != text.data() + text.size()) return std::errc::invalid_argument;
  return status;
}

/// The code of a number in the index: 0 for none, and small codes for small numbers. The smallest 64-bit number has
/// no code.
constexpr std::uint64_t code_of_number(std::int64_t number) noexcept {
  const auto bits = static_cast<std::uint64_t>(number);
  return ((bits << 1U) ^ (number < 0 ? ~std::uint64_t{0} : 0)) + 1;
}
constexpr std::int64_t number_of_code(std::uint64_t code) noexcept {
  const std::uint64_t folded = code - 1;
  return static_cast<std::int64_t>((folded >> 1U) ^ (~(folded & 1U) + 1));
}

}  // namespace penstock
