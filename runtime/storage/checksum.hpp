// Checksums of whole objects, which stores send in the headers of an answer. Pure. Used by the remote objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

enum class sum_kind : std::uint8_t { md5, sha256, crc32, crc32c, crc64nvme };

/// A checksum that a store has sent. `text`: base64; if it is an ETag, hex digits.
struct stated_sum {
  sum_kind kind = sum_kind::md5;
  std::string text;
};

/// "MD5", "CRC-64/NVME", ...
std::string_view name_of(sum_kind kind) noexcept;

/// The checksum of the whole object in a header; empty for other headers, and for checksums of parts ("...-3"). `name`:
/// in upper or lower case.
std::optional<stated_sum> sum_in_header(std::string_view name, std::string_view value);
/// An ETag that may be an MD5: 32 hex digits in quotes.
std::optional<stated_sum> sum_in_tag(std::string_view tag);

/// Whether the contents have this checksum. Empty if that is unknown: OpenSSL, which MD5 and SHA-256 need, is missing
/// or does not compute it.
std::optional<bool> has_sum(std::span<const std::byte> contents, const stated_sum& stated);

}  // namespace penstock
