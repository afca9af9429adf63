// How messages name a sample. A dataset may name its samples ("cats/tom.jpg"); otherwise the name is
// "sample 17", which only repeats the index.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// Replaces the number of a data loader's sample whose index is not a number. The name identifies such a
/// sample.
inline constexpr std::uint64_t not_numbered = ~std::uint64_t{0};

[[nodiscard]] inline std::string default_sample_name(std::uint64_t sample) {
  return fmt::format("sample {}", sample);
}
/// "sample 17 (cats/tom.jpg)"; "sample 17" if `name` is empty or the default.
[[nodiscard]] inline std::string sample_for_people(std::uint64_t sample, std::string_view name) {
  std::string text = default_sample_name(sample);
  if (!name.empty() && name != text) text += fmt::format(" ({})", name);
  return text;
}
/// For a name whose number is unknown: "sample 'cats/tom.jpg'". A default name stays as it is.
[[nodiscard]] inline std::string sample_for_people(std::string_view name) {
  constexpr std::string_view start = "sample ";
  const bool is_default = name.size() > start.size() && name.starts_with(start) &&
                          name.find_first_not_of("0123456789", start.size()) == std::string_view::npos;
  return is_default ? std::string(name) : fmt::format("sample '{}'", name);
}

}  // namespace penstock
