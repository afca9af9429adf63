// The mark with which some editors begin text in UTF-8. Used by readers of files that people write.
#pragma once

#include <string_view>

namespace penstock {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

constexpr std::string_view without_byte_order_mark(std::string_view text) noexcept {
  return text.substr(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
}

}  // namespace penstock
