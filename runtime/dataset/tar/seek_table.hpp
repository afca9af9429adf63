// The table at the end of a seekable zstd file. It says which frames the file has and which of them a range needs.
// Pure. Used to index shards, to read their members, and to write such files.
//
//   frames, each compressed alone
//   0x184D2A5E, bytes that follow                                       a skippable frame, which other readers ignore
//   for each frame: its bytes in the file, bytes of its contents, and, if flagged, the low half of their XXH64
//   number of frames, flags (0x80: checksums), 0x8F92EAB1               all little-endian, 32 bits; the flags 8
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/storage/readable.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// Frames are decompressed as a whole, so this bounds the reader's memory.
inline constexpr std::uint64_t zstd_frame_max = 64 * MiB;

/// The index of shards stores frames as this struct.
struct zstd_frame {
  std::uint64_t file_at = 0;
  std::uint64_t archive_at = 0;  ///< offset of its contents in the decompressed archive
  std::uint32_t file_bytes = 0;
  std::uint32_t archive_bytes = 0;
  std::uint32_t checksum = 0;
  std::uint32_t has_checksum = 0;
  bool operator==(const zstd_frame&) const = default;
};
static_assert(sizeof(zstd_frame) == 32);

inline constexpr std::uint64_t seek_table_foot = 9;

/// The size of the table, from the last seek_table_foot bytes of the file, where the table ends. Refuses
/// (errc::dataset) a file without a table, and a table longer than the file.
result<std::uint64_t> seek_table_bytes(std::span<const std::byte> foot, std::uint64_t file_bytes);

/// Parses a table of that size. Leaves out empty frames. Refuses (errc::dataset) a table that contradicts itself or the
/// size of the file, and frames above zstd_frame_max.
result<std::vector<zstd_frame>> parse_seek_table(std::span<const std::byte> table, std::uint64_t file_bytes);

/// Whether the frames lie within the file, leave no gaps in the archive, and are neither empty nor too large.
[[nodiscard]] bool frames_fit(std::span<const zstd_frame> frames, std::uint64_t file_bytes, std::uint64_t archive_bytes) noexcept;

/// The frames that hold this range of the archive. `frames` must cover all of it.
[[nodiscard]] std::span<const zstd_frame> frames_of(std::span<const zstd_frame> frames, byte_range range) noexcept;

/// Appends a table with checksums.
void append_seek_table(std::string& to, std::span<const zstd_frame> frames);

}  // namespace penstock
