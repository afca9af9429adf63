// Reads numbers from text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace penstock {

/// Empty if the text contains anything but the number, such as a blank or '+', or if the number does not fit the type.
template <class Number>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text, int base = 10) noexcept {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number, base);
  if (status != std::errc{} || rest != end) return std::nullopt;
  return number;
}

}  // namespace penstock
