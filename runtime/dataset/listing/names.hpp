// Which file names count. Used by the listings and the probe.
#pragma once

#include <string_view>

namespace penstock {

/// `ending` is lower case ASCII; the name may be in any case. Independent of the locale.
constexpr bool ends_with_any_case(std::string_view name, std::string_view ending) noexcept {
  if (name.size() < ending.size()) return false;
  name.remove_prefix(name.size() - ending.size());
  for (std::size_t i = 0; i < ending.size(); ++i) {
    const char c = name[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != ending[i]) return false;
  }
  return true;
}

constexpr bool is_picture_name(std::string_view name) noexcept {
  return ends_with_any_case(name, ".jpg") || ends_with_any_case(name, ".jpeg") ||
         ends_with_any_case(name, ".png");
}

}  // namespace penstock
