#include <fmt/format.h>

#define XXH_INLINE_ALL
#include "runtime/base/text.hpp"
#include "runtime/dataset/listing/names.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t frames_kept = 256;
constexpr std::uint64_t bytes_kept = 16 * MiB;

}  // namespace

bool is_zstd_name(std::string_view name) noexcept {
  return ends_with_any_case(name, ".tar.zst") || ends_with_any_case(name, ".tzst");
}

result<std::vector<zstd_frame>> read_frames(readable& file) {
  // This much is enough for most tables, so they take one request.
  const std::uint64_t usual = std::min<std::uint64_t>(file.bytes(), 64 * KiB);
  std::vector<std::byte> end(usual);
  if (auto ok = file.read(file.bytes() - usual, end); !ok) return tl::unexpected(std::move(ok.error()));
  const auto foot = std::span<const std::byte>(end).last(std::min<std::uint64_t>(usual, seek_table_foot));
  const auto bytes = seek_table_bytes(foot, file.bytes());
  if (!bytes) return tl::unexpected(bytes.error());
  if (*bytes > usual) {
    end.resize(*bytes);
    if (auto ok = file.read(file.bytes() - *bytes, end); !ok) return tl::unexpected(std::move(ok.error()));
  }
  return parse_seek_table(std::span<const std::byte>(end).last(*bytes), file.bytes());
}

result<void> frame_reader::open() {
  if (zstd_) return {};
  auto opened = zstd_codec::open("reading shards that are compressed with zstd");
  if (!opened) return tl::unexpected(std::move(opened.error()));
  zstd_.emplace(std::move(*opened));
  return {};
}

result<void> frame_reader::read(std::uint64_t number, readable& file, std::span<const zstd_frame> frames, std::uint64_t at,
                                std::span<std::byte> into) {
  if (auto ok = open(); !ok) return ok;
  for (const zstd_frame& frame : frames_of(frames, {at, into.size()})) {
    const auto contents = contents_of(number, file, frame);
    if (!contents) return tl::unexpected(contents.error());
    const auto wanted = contents->subspan(at - frame.archive_at).first(std::min<std::uint64_t>(into.size(), frame.archive_at + frame.archive_bytes - at));
    std::ranges::copy(wanted, into.begin());
    into = into.subspan(wanted.size());
    at += wanted.size();
  }
  if (into.empty()) return {};
  return refuse(errc::io, "ends at byte {} of its archive, {} bytes too early", at, into.size());
}

std::list<frame_reader::kept_frame>::iterator frame_reader::find(std::uint64_t number, const zstd_frame& frame) {
  return std::ranges::find_if(kept_, [&](const kept_frame& one) { return one.number == number && one.frame == frame; });
}

result<std::span<const std::byte>> frame_reader::contents_of(std::uint64_t number, readable& file, const zstd_frame& frame) {
  const auto found = find(number, frame);
  if (found != kept_.end()) {
    // An empty read only checks whether the file has changed.
    if (auto ok = file.read(frame.file_at, {}); !ok) return tl::unexpected(std::move(ok.error()));
    file.drop({frame.file_at, frame.file_bytes});
    kept_.splice(kept_.begin(), kept_, found);
  } else {
    kept_frame made = make_room(frame.archive_bytes);
    made.number = number;
    made.frame = frame;
    made.begin = made.contents.take(frame.archive_bytes);
    if (auto ok = decompress(file, frame, made.begin); !ok) return tl::unexpected(std::move(ok.error()));
    kept_bytes_ += frame.archive_bytes;
    kept_.push_front(std::move(made));
  }
  return std::span<const std::byte>(kept_.front().begin, frame.archive_bytes);
}

/// Drops frames until there is room. Returns one of them, so that its memory can be reused.
frame_reader::kept_frame frame_reader::make_room(std::uint64_t bytes) {
  kept_frame free;
  while (!kept_.empty() && (kept_.size() >= frames_kept || kept_bytes_ + bytes > bytes_kept)) {
    kept_bytes_ -= kept_.back().frame.archive_bytes;
    free = std::move(kept_.back());
    kept_.pop_back();
  }
  // Do not reuse a buffer that is far too large: small frames would keep the memory of large ones. A frame
  // counts as at least a page.
  constexpr std::uint64_t spare_max = 4;
  constexpr std::uint64_t page = 4 * KiB;
  if (free.contents.capacity() > spare_max * std::max(bytes, page)) return {};
  return free;
}

result<void> frame_reader::decompress(readable& file, const zstd_frame& frame, std::byte* to) {
  const std::span<std::byte> compressed(compressed_.take(frame.file_bytes), frame.file_bytes);
  if (auto ok = file.read(frame.file_at, compressed); !ok) return ok;
  const auto made = zstd_->decompress(compressed, {to, frame.archive_bytes});
  if (!made)
    return refuse(errc::io, "has a frame at byte {} of {} bytes that cannot be decompressed to the {} bytes that its seek table promises: {}",
                  frame.file_at, frame.file_bytes, frame.archive_bytes, made.error().message);
  if (*made != frame.archive_bytes)
    return refuse(errc::io, "has a frame at byte {} that decompresses to {} bytes, but its seek table says {}", frame.file_at, *made,
                  frame.archive_bytes);
  if (frame.has_checksum == 0) return {};
  const auto sum = static_cast<std::uint32_t>(XXH64(to, frame.archive_bytes, 0));
  if (sum != frame.checksum)
    return refuse(errc::io, "has a frame at byte {} whose contents have the checksum {:08x}, but its seek table says {:08x}: damaged", frame.file_at,
                  sum, frame.checksum);
  return {};
}

std::vector<byte_range> compressed_ranges(std::span<const zstd_frame> frames, std::span<const byte_range> ranges) {
  std::vector<byte_range> all;
  for (const byte_range& range : ranges)
    for (const zstd_frame& frame : frames_of(frames, range)) all.push_back({frame.file_at, frame.file_bytes});
  std::ranges::sort(all, {}, &byte_range::at);
  const auto again = std::ranges::unique(all, {}, &byte_range::at);
  all.erase(again.begin(), again.end());
  return all;
}

result<void> zstd_archive::read(std::uint64_t at, std::span<std::byte> into) {
  std::vector<byte_range> missing;
  for (const zstd_frame& frame : frames_of(frames_, {at, into.size()}))
    if (!reader_.keeps(0, frame)) missing.push_back({frame.file_at, frame.file_bytes});
  file_->expect(std::move(missing));
  return reader_.read(0, *file_, frames_, at, into);
}

}  // namespace penstock
