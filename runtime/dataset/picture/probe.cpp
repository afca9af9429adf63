#include "runtime/dataset/picture/probe.hpp"

#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/picture/orientation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

using bytes_view = std::span<const std::byte>;

bool begins_with(bytes_view bytes, std::string_view magic, std::size_t at = 0) noexcept {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

std::uint32_t big_endian(bytes_view bytes, std::size_t at, unsigned size) noexcept {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < size; ++i) value = value << 8U | std::to_integer<std::uint32_t>(bytes[at + i]);
  return value;
}

std::uint32_t little_endian(bytes_view bytes, std::size_t at, unsigned size) noexcept {
  std::uint32_t value = 0;
  for (unsigned i = size; i-- > 0;) value = value << 8U | std::to_integer<std::uint32_t>(bytes[at + i]);
  return value;
}

constexpr std::string_view jpeg_magic = "\xff\xd8\xff";
constexpr std::string_view png_magic = "\x89PNG\r\n\x1a\n";

std::string_view other_format(bytes_view file) noexcept {
  if (begins_with(file, "GIF8")) return " (a GIF)";
  if (begins_with(file, "BM")) return " (a BMP?)";
  if (begins_with(file, std::string_view("II*\0", 4)) || begins_with(file, std::string_view("MM\0*", 4))) {
    return " (a TIFF)";
  }
  if (begins_with(file, "ftyp", 4)) return " (HEIC, AVIF or a video)";
  return "";
}

tl::unexpected<failure> neither(bytes_view file, picture_format expected) {
  if (file.empty()) return refuse(errc::sample, "the file is empty");
  std::string start;
  for (std::size_t i = 0; i < std::min<std::size_t>(file.size(), 2); ++i) {
    start += fmt::format(" {:02x}", std::to_integer<unsigned>(file[i]));
  }
  return refuse(errc::sample, "not a {}: starts with{}{}", name_of(expected), start, other_format(file));
}

/// Visits the segments up to the first scan. Skips bytes that are not a marker, like libjpeg.
result<picture_info> probe_jpeg(bytes_view file) {
  picture_info info{picture_format::jpeg, {}, 1, false, false};
  bool exif_seen = false;
  std::size_t at = 2;
  while (true) {
    while (at < file.size() && file[at] != std::byte{0xff}) ++at;
    while (at < file.size() && file[at] == std::byte{0xff}) ++at;
    if (at >= file.size()) return refuse(errc::sample, "truncated JPEG: ends in its header");
    const auto marker = std::to_integer<unsigned>(file[at++]);
    if (marker == 0x00 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) continue;  // markers without a length
    if (marker == 0xd9 || marker == 0xda) break;                                           // EOI, SOS
    if (file.size() - at < 2) return refuse(errc::sample, "truncated JPEG: ends in its header");
    const std::size_t length = big_endian(file, at, 2);
    if (length < 2) return refuse(errc::sample, "corrupt JPEG: a header segment of {} bytes", length);
    if (file.size() - at < length) return refuse(errc::sample, "truncated JPEG: ends in its header");
    const bytes_view segment = file.subspan(at + 2, length - 2);
    const bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (frame && info.stored == extent{}) {
      if (segment.size() < 6) return refuse(errc::sample, "corrupt JPEG: a frame header of {} bytes", length);
      info.stored = {big_endian(segment, 3, 2), big_endian(segment, 1, 2)};
      if (info.stored.width == 0 || info.stored.height == 0) {
        return refuse(errc::sample, "a JPEG of {} x {} pixels", info.stored.width, info.stored.height);
      }
    }
    if (marker == 0xdd && segment.size() == 2) info.restart_markers = big_endian(segment, 0, 2) != 0;
    constexpr std::string_view exif("Exif\0\0", 6);
    if (marker == 0xe1 && !exif_seen && begins_with(segment, exif)) {
      exif_seen = true;
      info.orientation = orientation_in_exif(segment.subspan(exif.size()));
    }
    at += length;
  }
  if (info.stored == extent{}) return refuse(errc::sample, "corrupt JPEG: no frame header");
  return info;
}

result<picture_info> probe_png(bytes_view file) {
  constexpr std::size_t header_bytes = 13;
  std::size_t at = png_magic.size();
  if (file.size() < at + 8 + header_bytes || !begins_with(file, "IHDR", at + 4) ||
      big_endian(file, at, 4) != header_bytes) {
    return refuse(errc::sample, "truncated or corrupt PNG: no header chunk");
  }
  picture_info info{
      picture_format::png, {big_endian(file, at + 8, 4), big_endian(file, at + 12, 4)}, 1, false, false};
  info.interlaced = file[at + 20] != std::byte{0};
  constexpr std::uint32_t side_max = 0x7fffffff;
  if (info.stored.width == 0 || info.stored.height == 0 ||
      std::max(info.stored.width, info.stored.height) > side_max) {
    return refuse(errc::sample, "a PNG of {} x {} pixels", info.stored.width, info.stored.height);
  }
  // The eXIf chunk may be before or after the pixels. The decoder reports invalid chunks.
  while (file.size() - at >= 12) {
    const std::size_t length = big_endian(file, at, 4);
    if (length > file.size() - at - 12) break;
    if (begins_with(file, "eXIf", at + 4)) {
      info.orientation = orientation_in_exif(file.subspan(at + 8, length));
      break;
    }
    at += 12 + length;
  }
  return info;
}

bool is_webp(bytes_view file) noexcept { return begins_with(file, "RIFF") && begins_with(file, "WEBP", 8); }

/// The size that the first bytes of a lossy ("VP8 ") or lossless ("VP8L") frame state.
result<extent> size_of_frame(bytes_view frame, bool lossless) {
  extent size;
  if (lossless) {
    if (frame.size() < 5 || frame[0] != std::byte{0x2f}) return refuse(errc::sample, "corrupt WebP: no lossless frame header");
    const std::uint32_t packed = little_endian(frame, 1, 4);
    size = {1 + (packed & 0x3fffU), 1 + (packed >> 14U & 0x3fffU)};
  } else {
    if (frame.size() < 10 || !begins_with(frame, "\x9d\x01\x2a", 3)) return refuse(errc::sample, "corrupt WebP: no lossy frame header");
    size = {little_endian(frame, 6, 2) & 0x3fffU, little_endian(frame, 8, 2) & 0x3fffU};
  }
  if (size.width == 0 || size.height == 0) return refuse(errc::sample, "a WebP of {} x {} pixels", size.width, size.height);
  return size;
}

/// Visits all chunks, because EXIF is after the pixels.
result<picture_info> probe_webp(bytes_view file) {
  const std::uint64_t end = std::uint64_t{8} + little_endian(file, 4, 4);
  if (end > file.size()) return refuse(errc::sample, "truncated WebP: {} of its {} bytes", file.size(), end);
  picture_info info{picture_format::webp, {}, 1, false, false};
  extent canvas;  // only the extended format has one
  for (std::uint64_t at = 12; at + 8 <= end;) {
    const std::uint64_t length = little_endian(file, at + 4, 4);
    if (length > end - at - 8) return refuse(errc::sample, "corrupt WebP: a chunk of {} bytes, of which {} are in the file", length, end - at - 8);
    const bytes_view chunk = file.subspan(at + 8, length);
    const bool lossless = begins_with(file, "VP8L", at);
    if ((lossless || begins_with(file, "VP8 ", at)) && info.stored == extent{}) {
      const auto size = size_of_frame(chunk, lossless);
      if (!size) return tl::unexpected(size.error());
      info.stored = *size;
    } else if (begins_with(file, "VP8X", at)) {
      if (length < 10) return refuse(errc::sample, "corrupt WebP: a header chunk of {} bytes", length);
      constexpr unsigned animated = 2;
      if ((std::to_integer<unsigned>(chunk[0]) & animated) != 0)
        return refuse(errc::sample, "animated WebP: only still pictures are read");
      canvas = {1 + little_endian(chunk, 4, 3), 1 + little_endian(chunk, 7, 3)};
    } else if (begins_with(file, "EXIF", at)) {
      constexpr std::string_view prefix("Exif\0\0", 6);  // some programs write it here, too
      info.orientation = orientation_in_exif(begins_with(chunk, prefix) ? chunk.subspan(prefix.size()) : chunk);
    }
    at += 8 + length + length % 2;
  }
  if (info.stored == extent{}) return refuse(errc::sample, "corrupt WebP: no picture in it");
  if (canvas != extent{} && canvas != info.stored) {
    return refuse(errc::sample, "corrupt WebP: a picture of {} x {} pixels on a canvas of {} x {}", info.stored.width,
                  info.stored.height, canvas.width, canvas.height);
  }
  return info;
}

}  // namespace

std::string_view name_of(picture_format format) noexcept {
  switch (format) {
    case picture_format::png: return "PNG";
    case picture_format::webp: return "WebP";
    case picture_format::jpeg: break;
  }
  return "JPEG";
}

picture_format format_by_name(std::string_view name) noexcept {
  if (ends_with_any_case(name, "png")) return picture_format::png;
  return ends_with_any_case(name, "webp") ? picture_format::webp : picture_format::jpeg;
}

result<picture_info> probe(bytes_view file, picture_format expected) {
  if (begins_with(file, jpeg_magic)) return probe_jpeg(file);
  if (begins_with(file, png_magic)) return probe_png(file);
  if (is_webp(file)) return probe_webp(file);
  return neither(file, expected);
}

}  // namespace penstock
