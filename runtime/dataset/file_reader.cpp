#include "runtime/dataset/file_reader.hpp"

#include "runtime/base/read_at.hpp"
#include "runtime/base/read_time.hpp"
#include "runtime/base/stage_range.hpp"
#include "runtime/base/units.hpp"

#include <penstock/dataset.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace penstock {

bool is_transient(int os_code) noexcept {
  switch (os_code) {
    case EIO:
    case ESTALE:
    case EAGAIN:
    case ETIMEDOUT:
    case EREMOTEIO:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ECONNRESET:
    case ENFILE:
    case EMFILE:
    case ENOMEM: return true;
    default: return false;
  }
}

std::int64_t modified_ns_of(const struct ::stat& facts) noexcept {
  return std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

const char* kind_of_file(unsigned mode) noexcept {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown type";
}

result<open_file> open_for_reading(const std::string& path) {
  open_file made;
  // O_NONBLOCK: opening a FIFO would wait for a writer. No effect on regular files.
  made.fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!made.fd) return refuse_os(errc::io, errno, "cannot be opened");
  struct ::stat facts {};
  if (::fstat(made.fd.get(), &facts) != 0) return refuse_os(errc::io, errno, "cannot be examined");
  if (!S_ISREG(facts.st_mode)) return refuse(errc::io, "is {}, not a file", kind_of_file(facts.st_mode));
  made.bytes = static_cast<std::uint64_t>(facts.st_size);
  return made;
}

result<void> read_exactly(int fd, std::uint64_t at, std::span<std::byte> into) {
  const read_part got = read_at(fd, at, into);
  if (got.error != 0) return refuse_os(errc::io, got.error, "cannot be read");
  if (got.bytes < into.size())
    return refuse(errc::io, "ends at byte {}, but was longer when it was listed", at + got.bytes);
  return {};
}

void throw_failed(failure why) {
  if (is_transient(why.os_code)) throw transient_error(why.message);
  throw error(std::move(why));
}

namespace {

tl::unexpected<failure> too_large(std::uint64_t size, std::uint64_t bytes_max) {
  return refuse(errc::io, "is {}; the limit is {}", bytes_for_people(size), bytes_for_people(bytes_max));
}

}  // namespace

result<std::span<const std::byte>> file_reader::read(const std::string& path, std::uint64_t bytes_max) {
  const stage_range range("read");
  const timed_read timed;
  const auto file = open_for_reading(path);
  if (!file) return tl::unexpected(file.error());
  const std::uint64_t size = file->bytes;
  if (size > bytes_max) return too_large(size, bytes_max);
  std::byte* const bytes = buffer_.take(size);
  std::uint64_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file->fd.get(), bytes + have, size - have);
    if (got > 0) {
      have += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      return refuse(errc::io, "ends after {} of {} bytes: it was truncated while being read", have, size);
    } else if (errno != EINTR) {
      return refuse_os(errc::io, errno, "cannot be read");
    }
  }
  return std::span<const std::byte>(bytes, size);
}

result<std::span<const std::byte>> file_reader::read(readable& file, std::uint64_t bytes_max) {
  const stage_range range("read");
  const timed_read timed;
  const std::uint64_t size = file.bytes();
  if (size > bytes_max) return too_large(size, bytes_max);
  const std::span<std::byte> all(buffer_.take(size), size);
  if (auto ok = file.read(0, all); !ok) return tl::unexpected(std::move(ok.error()));
  return std::span<const std::byte>(all);
}

}  // namespace penstock
