// SHA-256 and HMAC-SHA-256, for signatures of a few hundred bytes. Used by signature.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

using sha256_sum = std::array<std::uint8_t, 32>;

sha256_sum sha256(std::string_view text);
sha256_sum hmac_sha256(std::string_view key, std::string_view text);

std::string hex_of(const sha256_sum& sum);
inline std::string_view bytes_of(const sha256_sum& sum) noexcept {
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

}  // namespace penstock
