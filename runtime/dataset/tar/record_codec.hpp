// How a sample is written in an index of shards: numbers of seven bits a byte, low bits first.
//
//   key bytes, key, members, then for each member
//     extension * 4 + kind        the extension's number in its shard; kind as in indexed_kind
//     gap                         blocks from the end of the previous member (or the beginning of the shard) to its header
//     bytes                       size of its contents, which begin one block after the header
//
// A separate list has the numbers of a shard's members, in the order of the records: a code (member_number.hpp)
// for each member of which has_number() is true and whose extension is that of a number (runtime/base/member_choice.hpp).
#pragma once

#include "runtime/base/units.hpp"
#include "runtime/dataset/tar/member_number.hpp"
#include "runtime/dataset/tar/tar_parser.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

inline constexpr std::size_t number_bytes_max = 10;

/// `to` must have room for number_bytes_max bytes. Returns where the number ends.
inline char* write_number(char* to, std::uint64_t value) noexcept {
  for (; value >= 0x80; value >>= 7U) *to++ = static_cast<char>(value | 0x80U);
  *to++ = static_cast<char>(value);
  return to;
}

/// Removes a number from the front of `from`. Empty if `from` ends within the number, or if the number has more than 64 bits.
inline std::optional<std::uint64_t> take_number(std::string_view& from) noexcept {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (from.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    if (shift == 63 && byte > 1) return std::nullopt;
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// The kinds of members that an index distinguishes.
enum class indexed_kind : std::uint8_t { file, link, sparse, other };

/// Whether the index stores the number that this member contains, provided that its extension is that of a
/// number.
constexpr bool has_number(indexed_kind kind, std::uint64_t bytes) noexcept {
  return kind == indexed_kind::file && bytes > 0 && bytes <= number_text_max;
}

/// The number of blocks for contents of this size.
constexpr std::uint64_t blocks_of(std::uint64_t bytes) noexcept {
  return bytes / tar_block + (bytes % tar_block != 0 ? 1 : 0);
}

}  // namespace penstock
