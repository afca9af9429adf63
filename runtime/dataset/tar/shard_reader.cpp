#include "runtime/dataset/tar/shard_reader.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/dataset/listing/found_files.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Gaps between members up to this size are also read, to save a call.
constexpr std::uint64_t gap_max = 64 * KiB;

}  // namespace

std::vector<byte_range> ranges_of(std::span<const indexed_member> members) {
  std::vector<byte_range> each;
  std::uint64_t wanted = 0;
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const indexed_member& member : members) {
    each.push_back({member.data_at(), member.bytes});
    wanted += member.bytes;
    begin = std::min(begin, member.data_at());
    end = std::max(end, member.data_at() + member.bytes);
  }
  if (!members.empty() && end - begin <= wanted + gap_max) return {{begin, end - begin}};
  return each;
}

shard_reader::shard_reader(const tar_index& index, std::string folder, std::shared_ptr<object_store> store)
    : index_(index), folder_(std::move(folder)), files_(std::move(store), file_check::size_and_time) {}

std::shared_ptr<readable> shard_reader::file_of(std::uint64_t shard) {
  return files_.file(shard, [&]() -> pooled_file {
    const indexed_shard known = index_.shard(shard);
    return {path_of_file(folder_, known.name), known.file_bytes, known.modified_ns, std::string(known.tag)};
  });
}

result<void> shard_reader::prepare() {
  for (std::uint64_t i = 0; i < index_.shards(); ++i)
    if (!index_.frames(i).empty()) return frames_.open();
  return {};
}

void shard_reader::expect(std::uint64_t shard, std::vector<byte_range> ranges) {
  if (const auto frames = index_.frames(shard); !frames.empty()) ranges = compressed_ranges(frames, ranges);
  file_of(shard)->expect(std::move(ranges));
}

result<void> shard_reader::read_range(std::uint64_t shard, byte_range range, std::span<std::byte> to) {
  const auto frames = index_.frames(shard);
  const auto file = file_of(shard);
  auto done = frames.empty() ? file->read(range.at, to) : frames_.read(shard, *file, frames, range.at, to);
  if (!done) done.error().message = "its shard " + done.error().message;
  return done;
}

result<std::span<const std::span<const std::byte>>> shard_reader::read(
    std::uint64_t shard, std::span<const indexed_member> members) {
  const stage_range range("read");
  const timed_read timed;
  contents_.clear();
  const std::vector<byte_range> ranges = ranges_of(members);
  std::uint64_t bytes = 0;
  for (const byte_range& one : ranges) bytes += one.bytes;
  const std::span<std::byte> all(buffer_.take(bytes), bytes);
  std::span<std::byte> left = all;
  for (const byte_range& one : ranges) {
    const auto own = left.first(one.bytes);
    if (auto ok = read_range(shard, one, own); !ok) return tl::unexpected(std::move(ok.error()));
    left = left.subspan(one.bytes);
    if (ranges.size() == members.size()) contents_.emplace_back(own);
  }
  if (ranges.size() == members.size()) return std::span<const std::span<const std::byte>>(contents_);
  for (const indexed_member& member : members)
    contents_.emplace_back(all.subspan(member.data_at() - ranges.front().at, member.bytes));
  return std::span<const std::span<const std::byte>>(contents_);
}

}  // namespace penstock
