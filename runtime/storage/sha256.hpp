// SHA-256 and HMAC-SHA-256 from OpenSSL's libcrypto.so.3, which is opened when the first digest is needed. Used by
// signature.cpp (credentials.cpp checks that it is installed) and actors/remote/dataset_program.cpp.
#pragma once

#include "runtime/base/result.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

using sha256_sum = std::array<std::uint8_t, 32>;

/// Refuses (errc::config) if OpenSSL 3 is missing. The functions below need it.
result<void> check_sha256();
sha256_sum sha256(std::string_view text);
sha256_sum hmac_sha256(std::string_view key, std::string_view text);

/// MD5, only for checksums that stores send. Empty if OpenSSL 3 is missing or does not compute MD5 (FIPS).
std::string md5(std::string_view text);

std::string hex_of(const sha256_sum& sum);
inline std::string_view bytes_of(const sha256_sum& sum) noexcept {
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

}  // namespace penstock
