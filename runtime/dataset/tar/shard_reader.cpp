#include "runtime/dataset/tar/shard_reader.hpp"

#include "runtime/base/read_at.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

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

shard_reader::shard_reader(const tar_index& index, std::string folder)
    : index_(index), folder_(std::move(folder)), open_(places_for(index.shards())) {}

result<int> shard_reader::open(std::uint64_t shard) {
  open_shard& place = open_[shard % open_.size()];
  const indexed_shard known = index_.shard(shard);
  if (!place.fd || place.shard != shard) {
    const std::string path = folder_ + "/" + std::string(known.name);
    place.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!place.fd) return refuse_os(errc::io, errno, "its shard cannot be opened");
    place.shard = shard;
  }
  struct ::stat facts {};
  if (::fstat(place.fd.get(), &facts) != 0) {
    const int os_code = errno;
    place.fd.reset();  // after ESTALE a new descriptor is needed
    return refuse_os(errc::io, os_code, "its shard cannot be examined");
  }
  const std::int64_t modified = modified_ns_of(facts);
  if (S_ISREG(facts.st_mode) && known.bytes == static_cast<std::uint64_t>(facts.st_size) &&
      known.modified_ns == modified)
    return place.fd.get();
  place.fd.reset();
  if (!S_ISREG(facts.st_mode))
    return refuse(errc::io, "its shard is {}, not a file", kind_of_file(facts.st_mode));
  return refuse(
      errc::io,
      "its shard changed since it was indexed ({} bytes then, {} now): start the session again when it is "
      "complete",
      known.bytes, facts.st_size);
}

result<void> shard_reader::read_range(std::uint64_t shard, int fd, std::uint64_t at,
                                      std::span<std::byte> to) {
  const read_part got = read_at(fd, at, to);
  if (got.error != 0) {
    open_[shard % open_.size()].fd.reset();
    return refuse_os(errc::io, got.error, "its shard cannot be read");
  }
  if (got.bytes < to.size()) {
    return refuse(errc::io, "its shard ends at byte {}, but was {} bytes long when it was indexed",
                  at + got.bytes, index_.shard(shard).bytes);
  }
  return {};
}

result<std::span<const std::span<const std::byte>>> shard_reader::read(
    std::uint64_t shard, std::span<const indexed_member> members) {
  const stage_range range("read");
  const timed_read timed;
  contents_.clear();
  const auto fd = open(shard);
  if (!fd) return tl::unexpected(fd.error());
  std::uint64_t wanted = 0;
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const indexed_member& member : members) {
    wanted += member.bytes;
    begin = std::min(begin, member.data_at());
    end = std::max(end, member.data_at() + member.bytes);
  }
  if (!members.empty() && end - begin <= wanted + gap_max) {
    const std::span<std::byte> all(buffer_.take(end - begin), end - begin);
    if (auto ok = read_range(shard, *fd, begin, all); !ok) return tl::unexpected(ok.error());
    for (const indexed_member& member : members)
      contents_.emplace_back(all.subspan(member.data_at() - begin, member.bytes));
    return std::span<const std::span<const std::byte>>(contents_);
  }
  std::span<std::byte> left(buffer_.take(wanted), wanted);
  for (const indexed_member& member : members) {
    const auto own = left.first(member.bytes);
    if (auto ok = read_range(shard, *fd, member.data_at(), own); !ok) return tl::unexpected(ok.error());
    contents_.emplace_back(own);
    left = left.subspan(member.bytes);
  }
  return std::span<const std::span<const std::byte>>(contents_);
}

}  // namespace penstock
