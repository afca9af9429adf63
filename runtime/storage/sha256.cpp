#include "runtime/storage/sha256.hpp"

#include "runtime/base/shared_library.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace penstock {
namespace {

struct crypto_library {
  decltype(&::OPENSSL_init_crypto) init = nullptr;
  decltype(&::EVP_sha256) sha256 = nullptr;
  decltype(&::EVP_md5) md5 = nullptr;
  decltype(&::EVP_Digest) digest = nullptr;
  decltype(&::HMAC) hmac = nullptr;
};

result<crypto_library> open_library() {
  const shared_library opened("libcrypto.so.3", shared_library::symbols::own_first);
  crypto_library library;
  if (!opened || !opened.find("OPENSSL_init_crypto", library.init) || !opened.find("EVP_sha256", library.sha256) ||
      !opened.find("EVP_md5", library.md5) || !opened.find("EVP_Digest", library.digest) || !opened.find("HMAC", library.hmac))
    return refuse(errc::config,
                  "SHA-256, which signs requests to S3 and compares worker programs, needs OpenSSL 3: {} (the package libssl3, "
                  "or libssl3t64, provides it)",
                  opened ? "libcrypto.so.3 lacks a function" : opened.trouble());
  // OpenSSL must not free its data in exit(), because threads may still be running then.
  library.init(OPENSSL_INIT_NO_ATEXIT, nullptr);
  return library;
}

const result<crypto_library>& the_library() {
  static const result<crypto_library> library = open_library();
  return library;
}

const unsigned char* raw(std::string_view text) noexcept {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

result<void> check_sha256() {
  if (const auto& library = the_library(); !library) return tl::unexpected(library.error());
  return {};
}

sha256_sum sha256(std::string_view text) {
  const crypto_library& ssl = *the_library();
  sha256_sum sum{};
  ssl.digest(text.data(), text.size(), sum.data(), nullptr, ssl.sha256(), nullptr);
  return sum;
}

sha256_sum hmac_sha256(std::string_view key, std::string_view text) {
  const crypto_library& ssl = *the_library();
  sha256_sum sum{};
  ssl.hmac(ssl.sha256(), key.data(), static_cast<int>(key.size()), raw(text), text.size(), sum.data(), nullptr);
  return sum;
}

std::string md5(std::string_view text) {
  constexpr std::size_t md5_bytes = 16;
  std::string sum(md5_bytes, '\0');
  const auto& ssl = the_library();
  auto* const to = reinterpret_cast<unsigned char*>(sum.data());
  if (!ssl || ssl->digest(text.data(), text.size(), to, nullptr, ssl->md5(), nullptr) != 1) return {};
  return sum;
}

std::string hex_of(const sha256_sum& sum) {
  return fmt::format("{:02x}", fmt::join(sum, ""));
}

}  // namespace penstock
