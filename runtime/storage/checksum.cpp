#include "runtime/storage/checksum.hpp"

#include "runtime/storage/sha256.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace penstock {
namespace {

/// Tables for eight bytes at a time: entry [k][b] is the sum of byte b followed by k zero bytes.
using crc_tables = std::array<std::array<std::uint64_t, 256>, 8>;

constexpr crc_tables tables_of(std::uint64_t reflected_polynomial) {
  crc_tables tables{};
  for (std::uint64_t byte = 0; byte < 256; ++byte) {
    std::uint64_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? reflected_polynomial : 0);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8U) ^ tables[0][tables[k - 1][byte] & 0xffU];
  return tables;
}

constexpr crc_tables crc32_tables = tables_of(0xedb88320U);
constexpr crc_tables crc32c_tables = tables_of(0x82f63b78U);
constexpr crc_tables crc64nvme_tables = tables_of(0x9a6c9329ac4bc9b5U);

/// The checksum's bytes, most significant byte first, as stores send them.
template <class Sum>
std::string crc(std::span<const std::byte> contents, const crc_tables& tables) {
  std::uint64_t sum = static_cast<Sum>(~Sum{0});
  std::size_t at = 0;
  for (std::uint64_t eight = 0; contents.size() - at >= sizeof eight; at += sizeof eight) {
    std::memcpy(&eight, contents.data() + at, sizeof eight);
    eight ^= sum;
    sum = 0;
    for (std::size_t k = 0; k < sizeof eight; ++k) sum ^= tables[7 - k][eight >> 8 * k & 0xffU];
  }
  for (; at < contents.size(); ++at) sum = (sum >> 8U) ^ tables[0][(sum ^ std::to_integer<std::uint64_t>(contents[at])) & 0xffU];
  sum = static_cast<Sum>(~static_cast<Sum>(sum));
  std::string bytes;
  for (std::size_t byte = sizeof(Sum); byte-- > 0;) bytes += static_cast<char>(sum >> 8 * byte & 0xffU);
  return bytes;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    const std::size_t here = std::min<std::size_t>(3, bytes.size() - at);
    for (std::size_t i = 0; i < 3; ++i) three = three << 8U | (i < here ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += i <= here ? digits[three >> (18 - 6 * i) & 0x3fU] : '=';
  }
  return text;
}

std::string hex_of(std::string_view bytes) {
  return fmt::format("{:02x}", fmt::join(std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()), ""));
}

constexpr std::size_t md5_hex = 32;

/// Empty if this machine cannot compute it.
std::string sum_of(sum_kind kind, std::span<const std::byte> contents) {
  const std::string_view text(reinterpret_cast<const char*>(contents.data()), contents.size());
  switch (kind) {
    case sum_kind::md5: return md5(text);
    case sum_kind::sha256: return check_sha256() ? std::string(bytes_of(sha256(text))) : std::string();
    case sum_kind::crc32: return crc<std::uint32_t>(contents, crc32_tables);
    case sum_kind::crc32c: return crc<std::uint32_t>(contents, crc32c_tables);
    case sum_kind::crc64nvme: return crc<std::uint64_t>(contents, crc64nvme_tables);
  }
  return {};
}

}  // namespace

std::string_view name_of(sum_kind kind) noexcept {
  switch (kind) {
    case sum_kind::md5: return "MD5";
    case sum_kind::sha256: return "SHA-256";
    case sum_kind::crc32: return "CRC-32";
    case sum_kind::crc32c: return "CRC-32C";
    case sum_kind::crc64nvme: return "CRC-64/NVME";
  }
  return "";
}

std::optional<stated_sum> sum_in_header(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, sum_kind>, 5> headers{{{"content-md5", sum_kind::md5},
                                                                          {"x-amz-checksum-sha256", sum_kind::sha256},
                                                                          {"x-amz-checksum-crc32", sum_kind::crc32},
                                                                          {"x-amz-checksum-crc32c", sum_kind::crc32c},
                                                                          {"x-amz-checksum-crc64nvme", sum_kind::crc64nvme}}};
  if (value.empty() || value.find('-') != std::string_view::npos) return std::nullopt;
  for (const auto& [known, kind] : headers)
    if (name.size() == known.size() && ::strncasecmp(name.data(), known.data(), name.size()) == 0)
      return stated_sum{kind, std::string(value)};
  return std::nullopt;
}

std::optional<stated_sum> sum_in_tag(std::string_view tag) {
  if (tag.size() != md5_hex + 2 || !tag.starts_with('"') || !tag.ends_with('"')) return std::nullopt;
  const std::string_view digits = tag.substr(1, md5_hex);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::ranges::all_of(digits, is_hex)) return std::nullopt;
  return stated_sum{sum_kind::md5, std::string(digits)};
}

std::optional<bool> has_sum(std::span<const std::byte> contents, const stated_sum& stated) {
  const std::string sum = sum_of(stated.kind, contents);
  if (sum.empty()) return std::nullopt;
  const bool in_hex = stated.kind == sum_kind::md5 && stated.text.size() == md5_hex;
  return stated.text == (in_hex ? hex_of(sum) : base64_of(sum));
}

}  // namespace penstock
