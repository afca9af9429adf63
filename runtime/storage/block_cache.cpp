#define XXH_INLINE_ALL
#include "runtime/storage/block_cache.hpp"

#include "runtime/base/read_at.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/xxh3.hpp"
#include "runtime/storage/cache_room.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <vector>

namespace penstock {
namespace {

std::uint32_t sum_of(std::span<const std::byte> block) noexcept {
  const auto sum = static_cast<std::uint32_t>(xxh3_of(block));
  return sum == 0 ? 1 : sum;
}

bool write_at(int fd, std::uint64_t at, std::span<const std::byte> from) noexcept {
  std::size_t done = 0;
  while (done < from.size()) {
    const ssize_t put = ::pwrite(fd, from.data() + done, from.size() - done, static_cast<off_t>(at + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

bool read_all(int fd, std::uint64_t at, std::span<std::byte> into) noexcept {
  const read_part got = read_at(fd, at, into);
  return got.error == 0 && got.bytes == into.size();
}

unique_fd open_sized(const std::string& path, std::uint64_t bytes) {
  unique_fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct ::stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return {};
  // If its length differs, the file is new, or another process is emptying it.
  if (static_cast<std::uint64_t>(facts.st_size) != bytes && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return {};
  return file;
}

std::uint64_t sum_bytes(std::uint64_t object_bytes) noexcept {
  return (object_bytes + cache_block - 1) / cache_block * sizeof(std::uint32_t);
}

/// The checksums of the blocks that the range touches; empty if they cannot be read.
std::vector<std::uint32_t> sums_around(int fd, std::uint64_t at, std::uint64_t bytes) {
  const std::uint64_t first = at / cache_block;
  std::vector<std::uint32_t> sums((at + bytes + cache_block - 1) / cache_block - first);
  if (!read_all(fd, first * sizeof(std::uint32_t), std::as_writable_bytes(std::span(sums)))) sums.clear();
  return sums;
}

std::int64_t modified(const struct ::stat& facts) noexcept {
  return std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

/// `path`: without the extension.
void empty_object(const std::string& path) {
  // Empty the checksums first. A concurrent reader then finds no checksums, or checksums that do not match
  // the contents, and uses neither.
  const unique_fd sums(::open((path + ".sums").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct ::stat facts {};
  if (!sums || ::fstat(sums.get(), &facts) != 0) return;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(facts.st_size));
  if (!write_at(sums.get(), 0, zeros)) return;
  const unique_fd data(::open((path + ".data").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!data || ::fstat(data.get(), &facts) != 0) return;
  if (::ftruncate(data.get(), 0) == 0 && ::ftruncate(data.get(), facts.st_size) == 0) return;
}

}  // namespace

result<std::shared_ptr<block_cache>> block_cache::open(const std::string& folder, std::uint64_t bytes_max) {
  std::error_code fault;
  const bool made = std::filesystem::create_directories(folder, fault);
  if (fault)
    return refuse_os(errc::io, fault.value(), fmt::format("making the folder '{}' of [storage] cache", printable(folder)));
  if (made && ::chmod(folder.c_str(), 0700) != 0)
    return refuse_os(errc::io, errno, fmt::format("making '{}' private", printable(folder)));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return refuse_os(errc::io, errno, fmt::format("writing to '{}', the folder of [storage] cache", printable(folder)));
  return std::shared_ptr<block_cache>(new block_cache(folder, bytes_max));
}

std::string block_cache::path_of(const std::string& identity, std::uint64_t bytes) const {
  const std::string facts = fmt::format("{} {}", identity, bytes);
  const XXH128_hash_t name = XXH3_128bits(facts.data(), facts.size());
  return fmt::format("{}/object-{:016x}{:016x}", folder_, name.high64, name.low64);
}

std::unique_ptr<cached_object> block_cache::object(const std::string& identity, std::uint64_t bytes) {
  const std::string path = path_of(identity, bytes);
  unique_fd data = open_sized(path + ".data", bytes);
  unique_fd sums = open_sized(path + ".sums", sum_bytes(bytes));
  if (!data || !sums) return nullptr;
  // The time of modification records when the object was last used. Reading does not
  // change it, so set it here.
  ::futimens(sums.get(), nullptr);
  return std::unique_ptr<cached_object>(
      new cached_object(shared_from_this(), std::move(data), std::move(sums), bytes));
}

void block_cache::begin_session() {
  const unique_fd file(::open(session_file().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file) ::futimens(file.get(), nullptr);
}

void block_cache::will_use(const std::string& identity, std::uint64_t bytes) {
  ::utimensat(AT_FDCWD, (path_of(identity, bytes) + ".sums").c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

/// When the latest session began. If there never was a session, a time after all uses: no object is in use.
std::int64_t block_cache::session_began() const {
  struct ::stat facts {};
  return ::stat(session_file().c_str(), &facts) == 0 ? modified(facts) : std::numeric_limits<std::int64_t>::max();
}

bool block_cache::takes(std::uint64_t bytes) {
  const std::uint64_t step = std::max<std::uint64_t>(bytes_max_ / 64, MiB);
  if (offered_.fetch_add(bytes) + bytes >= step) {
    offered_ = 0;
    shrink();
  }
  return !full_;
}

std::uint64_t block_cache::shrink() {
  std::vector<kept_object> all;
  std::vector<std::string> paths;  // without their extensions
  std::error_code fault;
  for (std::filesystem::directory_iterator at(folder_, fault), end; !fault && at != end; at.increment(fault)) {
    const std::string path = at->path().string();
    if (!at->path().filename().string().starts_with("object-") || !path.ends_with(".data")) continue;
    std::string stem = path.substr(0, path.size() - std::string_view(".data").size());
    struct ::stat data {};
    struct ::stat sums {};
    if (::stat(path.c_str(), &data) != 0 || ::stat((stem + ".sums").c_str(), &sums) != 0) continue;
    all.push_back({static_cast<std::uint64_t>(data.st_blocks) * 512, modified(sums)});
    paths.push_back(std::move(stem));
  }
  const cache_room room = make_room(all, session_began(), bytes_max_);
  for (const std::size_t i : room.emptied) empty_object(paths[i]);
  full_ = room.full;
  return room.left;
}

bool cached_object::has(std::uint64_t at, std::uint64_t bytes) const {
  const auto sums = sums_around(sums_.get(), at, bytes);
  return !sums.empty() && std::ranges::find(sums, 0U) == sums.end();
}

bool cached_object::read(std::uint64_t at, std::span<std::byte> into) const {
  const auto sums = sums_around(sums_.get(), at, into.size());
  if (sums.empty() || std::ranges::find(sums, 0U) != sums.end()) return false;
  const std::uint64_t begin = at / cache_block * cache_block;
  const std::uint64_t end = std::min(bytes_, begin + sums.size() * cache_block);
  std::vector<std::byte> blocks(end - begin);
  if (!read_all(data_.get(), begin, blocks)) return false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto block = std::span(blocks).subspan(i * cache_block);
    if (sum_of(block.first(std::min<std::size_t>(block.size(), cache_block))) != sums[i]) return false;
  }
  std::ranges::copy(std::span(blocks).subspan(at - begin, into.size()), into.begin());
  return true;
}

void cached_object::keep(std::uint64_t at, std::span<const std::byte> contents) {
  const std::uint64_t first = (at + cache_block - 1) / cache_block;
  const std::uint64_t end = at + contents.size();
  const std::uint64_t behind = end == bytes_ ? (end + cache_block - 1) / cache_block : end / cache_block;
  if (first >= behind) return;
  const auto whole = contents.subspan(first * cache_block - at, std::min(end, behind * cache_block) - first * cache_block);
  std::vector<std::uint32_t> sums;
  for (std::size_t i = 0; i < behind - first; ++i) {
    const auto block = whole.subspan(i * cache_block);
    sums.push_back(sum_of(block.first(std::min<std::size_t>(block.size(), cache_block))));
  }
  if (!cache_->takes(whole.size()) || !write_at(data_.get(), first * cache_block, whole)) return;
  static_cast<void>(write_at(sums_.get(), first * sizeof(std::uint32_t), std::as_bytes(std::span(sums))));
}

}  // namespace penstock
