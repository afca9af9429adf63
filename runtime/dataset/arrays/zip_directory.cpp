#include "runtime/dataset/arrays/zip_directory.hpp"

#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

// APPNOTE.TXT 6.3.10, sections 4.3 to 4.5. All numbers are little-endian.
constexpr std::uint32_t local_magic = 0x04034b50;
constexpr std::uint32_t entry_magic = 0x02014b50;
constexpr std::uint32_t end_magic = 0x06054b50;
constexpr std::uint32_t end64_magic = 0x06064b50;
constexpr std::uint32_t locator64_magic = 0x07064b50;
constexpr std::size_t local_bytes = 30;
constexpr std::size_t entry_bytes = 46;
constexpr std::size_t end_bytes = 22;
constexpr std::size_t end64_bytes = 56;
constexpr std::size_t locator64_bytes = 20;
constexpr std::uint64_t comment_max = 65535;
constexpr std::uint64_t directory_max = 64 * MiB;
constexpr std::uint16_t extra_zip64 = 1;

using bytes_view = std::span<const std::byte>;

template <class Number>
Number number_at(bytes_view bytes, std::size_t at) {
  Number value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view text_at(bytes_view bytes, std::size_t at, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, size};
}

struct directory_place {
  std::uint64_t at = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

result<directory_place> find_directory(const archive_reader& read, std::uint64_t archive_bytes) {
  const auto none = [] { return refuse(errc::dataset, "is not a zip archive, or its end is missing"); };
  if (archive_bytes < end_bytes) return none();
  std::vector<std::byte> tail(
      std::min<std::uint64_t>(archive_bytes, end_bytes + comment_max + locator64_bytes));
  const std::uint64_t tail_at = archive_bytes - tail.size();
  if (auto ok = read(tail_at, tail); !ok) return tl::unexpected(std::move(ok.error()));
  std::size_t end = tail.size() - end_bytes + 1;
  while (end > 0) {
    --end;
    // The comment must fill the rest of the file exactly.
    if (number_at<std::uint32_t>(tail, end) == end_magic &&
        number_at<std::uint16_t>(tail, end + 20) == tail.size() - end - end_bytes)
      break;
    if (end == 0) return none();
  }
  directory_place place{number_at<std::uint32_t>(tail, end + 16), number_at<std::uint32_t>(tail, end + 12),
                        number_at<std::uint16_t>(tail, end + 10)};
  std::uint64_t directory_end = tail_at + end;
  if (end >= locator64_bytes && number_at<std::uint32_t>(tail, end - locator64_bytes) == locator64_magic) {
    const auto at = number_at<std::uint64_t>(tail, end - locator64_bytes + 8);
    std::vector<std::byte> end64(end64_bytes);
    if (at > archive_bytes || archive_bytes - at < end64_bytes) return none();
    if (auto ok = read(at, end64); !ok) return tl::unexpected(std::move(ok.error()));
    if (number_at<std::uint32_t>(end64, 0) != end64_magic) return none();
    place = {number_at<std::uint64_t>(end64, 48), number_at<std::uint64_t>(end64, 40),
             number_at<std::uint64_t>(end64, 32)};
    directory_end = at;
  }
  if (place.bytes > directory_max)
    return refuse(errc::dataset, "has a directory of {}: at most {} are read", bytes_for_people(place.bytes),
                  bytes_for_people(directory_max));
  if (place.at > directory_end || directory_end - place.at < place.bytes ||
      place.entries > place.bytes / entry_bytes)
    return refuse(errc::dataset, "has a directory that extends beyond its end: it is damaged or cut off");
  return place;
}

/// An extra field contains only those sizes and offsets that do not fit in 32 bits, in this order.
bool take_zip64(bytes_view extra, zip_member& member) {
  const auto is_elsewhere = [](std::uint64_t value) { return value == 0xffffffffU; };
  while (extra.size() >= 4) {
    const auto kind = number_at<std::uint16_t>(extra, 0);
    const std::size_t size = number_at<std::uint16_t>(extra, 2);
    if (extra.size() - 4 < size) return false;
    bytes_view values = extra.subspan(4, size);
    extra = extra.subspan(4 + size);
    if (kind != extra_zip64) continue;
    for (std::uint64_t* value : {&member.bytes, &member.stored, &member.header_at}) {
      if (!is_elsewhere(*value)) continue;
      if (values.size() < 8) return false;
      *value = number_at<std::uint64_t>(values, 0);
      values = values.subspan(8);
    }
  }
  return true;
}

result<zip_member> member_of(bytes_view entry, bytes_view name, bytes_view extra,
                             std::uint64_t archive_bytes) {
  zip_member member;
  member.name = text_at(name, 0, name.size());
  member.crc = number_at<std::uint32_t>(entry, 16);
  member.stored = number_at<std::uint32_t>(entry, 20);
  member.bytes = number_at<std::uint32_t>(entry, 24);
  member.header_at = number_at<std::uint32_t>(entry, 42);
  const std::string shown = printable(shortened(member.name, 100));
  if (!take_zip64(extra, member))
    return refuse(errc::dataset, "has a damaged entry for '{}' in its directory", shown);
  if ((number_at<std::uint16_t>(entry, 8) & 1U) != 0)
    return refuse(errc::dataset, "has an encrypted member '{}'", shown);
  const auto method = number_at<std::uint16_t>(entry, 10);
  if (method != 0 && method != Z_DEFLATED)
    return refuse(errc::dataset,
                  "has a member '{}' compressed by method {}: only stored and deflated members are read",
                  shown, method);
  member.deflated = method == Z_DEFLATED;
  if (!member.deflated && member.stored != member.bytes)
    return refuse(errc::dataset, "has an uncompressed member '{}' of {} bytes, but stores {} bytes for it",
                  shown, member.bytes, member.stored);
  if (member.header_at > archive_bytes || archive_bytes - member.header_at < local_bytes ||
      archive_bytes - member.header_at - local_bytes < member.stored)
    return refuse(errc::dataset, "ends before its member '{}' does: it is cut off", shown);
  return member;
}

}  // namespace

result<std::vector<zip_member>> read_zip_directory(const archive_reader& read, std::uint64_t archive_bytes) {
  const auto place = find_directory(read, archive_bytes);
  if (!place) return tl::unexpected(place.error());
  std::vector<std::byte> directory(place->bytes);
  if (auto ok = read(place->at, directory); !ok) return tl::unexpected(std::move(ok.error()));
  std::vector<zip_member> members;
  std::set<std::string> names;
  bytes_view rest = directory;
  for (std::uint64_t i = 0; i < place->entries; ++i) {
    const auto damaged = [&] {
      return refuse(errc::dataset, "has a directory that is damaged at entry {}", i);
    };
    if (rest.size() < entry_bytes || number_at<std::uint32_t>(rest, 0) != entry_magic) return damaged();
    const std::size_t name = number_at<std::uint16_t>(rest, 28);
    const std::size_t extra = number_at<std::uint16_t>(rest, 30);
    const std::size_t whole = entry_bytes + name + extra + number_at<std::uint16_t>(rest, 32);
    if (rest.size() < whole) return damaged();
    auto member = member_of(rest, rest.subspan(entry_bytes, name), rest.subspan(entry_bytes + name, extra),
                            archive_bytes);
    if (!member) return tl::unexpected(std::move(member.error()));
    if (!names.insert(member->name).second)
      return refuse(errc::dataset, "has two members '{}'", printable(shortened(member->name, 100)));
    members.push_back(std::move(*member));
    rest = rest.subspan(whole);
  }
  return members;
}

result<std::uint64_t> contents_of(const zip_member& member, const archive_reader& read,
                                  std::uint64_t archive_bytes) {
  std::vector<std::byte> header(local_bytes);
  if (auto ok = read(member.header_at, header); !ok) return tl::unexpected(std::move(ok.error()));
  const std::string shown = printable(shortened(member.name, 100));
  const std::size_t name = number_at<std::uint16_t>(header, 26);
  const std::uint64_t begin = member.header_at + local_bytes + name + number_at<std::uint16_t>(header, 28);
  const auto method = number_at<std::uint16_t>(header, 8);
  if (number_at<std::uint32_t>(header, 0) != local_magic || name != member.name.size() ||
      method != (member.deflated ? Z_DEFLATED : 0))
    return refuse(errc::dataset, "has a member '{}' whose header contradicts the directory", shown);
  if (begin > archive_bytes || archive_bytes - begin < member.stored)
    return refuse(errc::dataset, "ends before its member '{}' does: it is cut off", shown);
  std::vector<std::byte> text(name);
  if (auto ok = read(member.header_at + local_bytes, text); !ok) return tl::unexpected(std::move(ok.error()));
  if (text_at(text, 0, name) != member.name)
    return refuse(errc::dataset, "has a member '{}' in its directory, but '{}' in the member's own header",
                  shown, printable(shortened(text_at(text, 0, name), 100)));
  return begin;
}

namespace {

result<void> another_checksum(const zip_member& member) {
  return refuse(errc::dataset, "has a member '{}' whose contents do not match its checksum", printable(shortened(member.name, 100)));
}

}  // namespace

result<void> inflate(const zip_member& member, std::uint64_t contents_at, const archive_reader& read,
                     const std::function<result<bool>(std::span<const std::byte>)>& take) {
  const std::string shown = printable(shortened(member.name, 100));
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    return refuse(errc::out_of_memory, "starting to inflate '{}'", shown);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&stream, inflateEnd);
  std::vector<std::byte> from(inflate_piece);
  std::vector<std::byte> to(inflate_piece);
  std::uint64_t left = member.stored;
  std::uint64_t have = 0;
  uLong crc = crc32(0, nullptr, 0);
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (stream.avail_in == 0 && left > 0) {
      const auto piece = std::span(from).first(std::min<std::uint64_t>(left, from.size()));
      if (auto ok = read(contents_at + member.stored - left, piece); !ok) return ok;
      left -= piece.size();
      stream.next_in = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_in = static_cast<uInt>(piece.size());
    }
    stream.next_out = reinterpret_cast<Bytef*>(to.data());
    stream.avail_out = static_cast<uInt>(to.size());
    status = ::inflate(&stream, Z_NO_FLUSH);
    const auto made = std::span(to).first(to.size() - stream.avail_out);
    if (status != Z_OK && status != Z_STREAM_END)
      return refuse(errc::dataset, "has a member '{}' that is damaged or cut off after {} bytes", shown,
                    have + made.size());
    if (made.size() > member.bytes - have)
      return refuse(errc::dataset, "has a member '{}' that inflates to more than its {} bytes", shown,
                    member.bytes);
    have += made.size();
    crc = crc32(crc, reinterpret_cast<const Bytef*>(made.data()), static_cast<uInt>(made.size()));
    const auto more = take(made);
    if (!more) return tl::unexpected(more.error());
    if (!*more) return {};
  }
  if (have != member.bytes)
    return refuse(errc::dataset, "has a member '{}' that inflates to {} bytes instead of {}", shown, have,
                  member.bytes);
  return crc == member.crc ? result<void>() : another_checksum(member);
}

result<void> check_stored(const zip_member& member, std::uint64_t contents_at, const archive_reader& read) {
  std::vector<std::byte> piece(inflate_piece);
  uLong crc = crc32(0, nullptr, 0);
  for (std::uint64_t at = 0; at < member.bytes;) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(member.bytes - at, piece.size()));
    if (auto ok = read(contents_at + at, part); !ok) return ok;
    crc = crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    at += part.size();
  }
  return crc == member.crc ? result<void>() : another_checksum(member);
}

}  // namespace penstock
