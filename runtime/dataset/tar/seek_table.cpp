#include "runtime/dataset/tar/seek_table.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::uint32_t skippable_magic = 0x184D2A5E;
constexpr std::uint32_t seekable_magic = 0x8F92EAB1;
constexpr std::uint32_t frames_max = 0x8000000;  // limit of the format
constexpr std::uint64_t table_head = 8;
constexpr unsigned checksum_flag = 0x80;
constexpr unsigned reserved_flags = 0x7c;
/// Incompressible data grows a little, and a table may count skippable frames as part of the frame before them.
constexpr std::uint64_t frame_file_bytes_max = zstd_frame_max + zstd_frame_max / 64;

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8U | static_cast<std::uint32_t>(bytes[at + i]);
  return value;
}

void append_u32(std::string& to, std::uint64_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8) to += static_cast<char>(value >> shift);
}

std::uint64_t bytes_of_entry(unsigned flags) noexcept {
  return (flags & checksum_flag) != 0 ? 12 : 8;
}

}  // namespace

result<std::uint64_t> seek_table_bytes(std::span<const std::byte> foot, std::uint64_t file_bytes) {
  if (foot.size() < seek_table_foot || number_at(foot, 5) != seekable_magic)
    return refuse(errc::dataset,
                  "has no seek table at its end, so its members could not be read one by one: `zstd -d` it, and compress "
                  "the .tar with `penstock pack FILE.tar --out DIR --compress zstd` or `t2sz`");
  const std::uint32_t frames = number_at(foot, 0);
  const auto flags = static_cast<unsigned>(foot[4]);
  if ((flags & reserved_flags) != 0) return refuse(errc::dataset, "has a seek table with unknown flags ({:#x})", flags);
  const std::uint64_t bytes = table_head + frames * bytes_of_entry(flags) + seek_table_foot;
  if (frames > frames_max || bytes > file_bytes)
    return refuse(errc::dataset, "has a seek table that claims {} frames, for which a file of {} bytes has no room", frames, file_bytes);
  return bytes;
}

result<std::vector<zstd_frame>> parse_seek_table(std::span<const std::byte> table, std::uint64_t file_bytes) {
  const auto bytes = seek_table_bytes(table.last(std::min<std::uint64_t>(table.size(), seek_table_foot)), file_bytes);
  if (!bytes) return tl::unexpected(bytes.error());
  if (*bytes != table.size() || number_at(table, 0) != skippable_magic || number_at(table, 4) != table.size() - table_head)
    return refuse(errc::dataset, "has a damaged seek table: according to its number of frames it begins {} bytes before the end, but it is not there", *bytes);
  const auto flags = static_cast<unsigned>(table[table.size() - 5]);
  const std::uint64_t frames_end = file_bytes - *bytes;
  std::vector<zstd_frame> frames;
  zstd_frame next;
  for (std::size_t at = table_head; at + seek_table_foot < table.size(); at += bytes_of_entry(flags)) {
    next.file_bytes = number_at(table, at);
    next.archive_bytes = number_at(table, at + 4);
    next.has_checksum = (flags & checksum_flag) != 0 ? 1 : 0;
    next.checksum = next.has_checksum != 0 ? number_at(table, at + 8) : 0;
    if (next.file_bytes > frames_end - next.file_at)
      return refuse(errc::dataset, "has a seek table whose frame at byte {} would end after the table begins, at byte {}: the file was cut short or damaged",
                    next.file_at, frames_end);
    // Skippable frames have no contents.
    if (next.archive_bytes > 0) {
      if (next.archive_bytes > zstd_frame_max || next.file_bytes > frame_file_bytes_max)
        return refuse(errc::dataset, "has a frame at byte {} of {} compressed and {} decompressed bytes; at most {} are read at once: write it again with smaller frames (t2sz -S 1M)",
                      next.file_at, next.file_bytes, next.archive_bytes, bytes_for_people(zstd_frame_max));
      frames.push_back(next);
    }
    next.file_at += next.file_bytes;
    next.archive_at += next.archive_bytes;
  }
  if (next.file_at != frames_end)
    return refuse(errc::dataset, "has a seek table whose frames end at byte {}, but the table begins at byte {}: the file was damaged",
                  next.file_at, frames_end);
  return frames;
}

bool frames_fit(std::span<const zstd_frame> frames, std::uint64_t file_bytes, std::uint64_t archive_bytes) noexcept {
  std::uint64_t archive_at = 0;
  for (const zstd_frame& one : frames) {
    if (one.archive_at != archive_at || one.archive_bytes == 0 || one.archive_bytes > zstd_frame_max || one.file_bytes > frame_file_bytes_max ||
        one.file_bytes > file_bytes || one.file_at > file_bytes - one.file_bytes)
      return false;
    archive_at += one.archive_bytes;
  }
  return archive_at == archive_bytes;
}

std::span<const zstd_frame> frames_of(std::span<const zstd_frame> frames, byte_range range) noexcept {
  if (range.bytes == 0) return {};
  const auto behind = [&](std::uint64_t at) { return std::ranges::upper_bound(frames, at, {}, &zstd_frame::archive_at); };
  const auto first = behind(range.at);
  if (first == frames.begin()) return {};
  return {first - 1, behind(range.at + range.bytes - 1)};
}

void append_seek_table(std::string& to, std::span<const zstd_frame> frames) {
  append_u32(to, skippable_magic);
  append_u32(to, frames.size() * bytes_of_entry(checksum_flag) + seek_table_foot);
  for (const zstd_frame& one : frames) {
    append_u32(to, one.file_bytes);
    append_u32(to, one.archive_bytes);
    append_u32(to, one.checksum);
  }
  append_u32(to, frames.size());
  to += static_cast<char>(checksum_flag);
  append_u32(to, seekable_magic);
}

}  // namespace penstock
