// Where characters end in UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock {

/// Length of the valid UTF-8 sequence at the beginning (Unicode 15, table 3-7), 0 if there is none. `text` is not empty.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto in = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && static_cast<std::uint8_t>(text[i]) >= low && static_cast<std::uint8_t>(text[i]) <= high;
  };
  const unsigned lead = static_cast<std::uint8_t>(text[0]);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return in(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef)
    return in(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf) && in(2, 0x80, 0xbf) ? 3 : 0;
  if (lead < 0xf0 || lead > 0xf4) return 0;
  return in(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf) && in(2, 0x80, 0xbf) && in(3, 0x80, 0xbf) ? 4 : 0;
}

}  // namespace penstock
