#include "runtime/dataset/tar/shard_reader.hpp"

#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/dataset/local_file.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace penstock {
namespace {

/// Gaps between members up to this size are read as well, to save a call.
constexpr std::uint64_t gap_max = 64 * KiB;

std::size_t places_for(std::uint64_t shards) {
  constexpr std::uint64_t places_min = 64;
  constexpr std::uint64_t places_max = 4096;
  ::rlimit limit{};
  const std::uint64_t allowed = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : places_min;
  return std::min(shards, std::clamp(allowed, places_min, places_max));
}

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
    : index_(index), folder_(std::move(folder)), store_(std::move(store)), open_(places_for(index.shards())) {}

readable& shard_reader::file_of(std::uint64_t shard) {
  open_shard& place = open_[shard % open_.size()];
  if (!place.file || place.shard != shard) {
    const indexed_shard known = index_.shard(shard);
    place.file =
        std::make_unique<local_file>(folder_ + "/" + std::string(known.name), known.bytes, known.modified_ns);
    place.shard = shard;
  }
  return *place.file;
}

std::shared_ptr<remote_object> shard_reader::object_of(std::uint64_t shard) {
  const std::lock_guard lock(mutex_);
  open_shard& place = open_[shard % open_.size()];
  if (!place.object || place.shard != shard) {
    const indexed_shard known = index_.shard(shard);
    place.object = store_->object(folder_ + "/" + std::string(known.name), {known.bytes, std::string(known.tag)});
    place.shard = shard;
  }
  return place.object;
}

void shard_reader::expect(std::uint64_t shard, std::vector<byte_range> ranges) {
  object_of(shard)->expect(std::move(ranges));
}

result<void> shard_reader::read_range(std::uint64_t shard, byte_range range, std::span<std::byte> to) {
  auto done = store_ ? object_of(shard)->read(range.at, to) : file_of(shard).read(range.at, to);
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
