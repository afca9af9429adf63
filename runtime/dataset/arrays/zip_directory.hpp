// Reads the members of a zip archive and their contents, for .npz files. Supports Zip64. Refuses encryption, methods
// other than "stored" and "deflated", and archives in several parts. Used by array_index.
#pragma once

#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

struct zip_member {
  std::string name;
  std::uint64_t header_at = 0;  ///< offset of its local header
  std::uint64_t stored = 0;     ///< bytes in the archive
  std::uint64_t bytes = 0;      ///< bytes of its contents when inflated
  std::uint32_t crc = 0;
  bool deflated = false;
};

/// Fills `into` from byte `at` of the archive.
using archive_reader = std::function<result<void>(std::uint64_t at, std::span<std::byte> into)>;

/// The members in the order of the central directory. Refuses (errc::dataset, one sentence without the file's name) a
/// file that is not a zip archive or is cut off, a directory of more than 64 MiB, members
/// outside the file, two members with the same name, and the unsupported features above.
result<std::vector<zip_member>> read_zip_directory(const archive_reader& read, std::uint64_t archive_bytes);

/// Where the member's stored bytes begin. Refuses a local header that contradicts the directory.
result<std::uint64_t> contents_of(const zip_member& member, const archive_reader& read,
                                  std::uint64_t archive_bytes);

/// How much of a member inflate() reads at once.
inline constexpr std::size_t inflate_piece = 256UL * 1024;

/// Inflates a deflated member piece by piece until `take` returns false. Refuses contents that are damaged, have
/// another checksum, or are shorter or longer than the directory says; `take` never gets more than `bytes`.
result<void> inflate(const zip_member& member, std::uint64_t contents_at, const archive_reader& read,
                     const std::function<result<bool>(std::span<const std::byte>)>& take);

/// Reads all of a stored member, and refuses contents with another checksum.
result<void> check_stored(const zip_member& member, std::uint64_t contents_at, const archive_reader& read);

}  // namespace penstock
