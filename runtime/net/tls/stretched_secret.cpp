#include "runtime/net/tls/stretched_secret.hpp"

#include "runtime/base/units.hpp"
#include "runtime/net/tls/tls_library.hpp"

namespace penstock::group {
namespace {

constexpr std::uint64_t cost = 1U << 15U;
constexpr std::uint64_t block_size = 8;
constexpr std::uint64_t parallel = 3;
constexpr std::uint64_t memory_max = 64 * MiB;  // 128 * cost * block_size are 32 MiB
constexpr std::size_t stretched_bytes = 32;

}  // namespace

result<std::string> stretched(std::string_view secret, std::string_view salt) {
  const auto library = tls_library::get();
  if (!library) return tl::unexpected(library.error());
  const tls_library& ssl = **library;
  std::string key(stretched_bytes, '\0');
  ssl.ERR_clear_error();
  if (ssl.EVP_PBE_scrypt(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(salt.data()),
                         salt.size(), cost, block_size, parallel, memory_max,
                         reinterpret_cast<unsigned char*>(key.data()), key.size()) == 1)
    return key;
  const unsigned long code = ssl.ERR_get_error();
  const char* const why = code != 0 ? ssl.ERR_reason_error_string(code) : nullptr;
  return refuse(errc::config,
                "OpenSSL cannot derive a key from the group's secret with scrypt: {}; a secret from "
                "'penstock secret' does not need that",
                why != nullptr ? why : "it gives no reason");
}

}  // namespace penstock::group
