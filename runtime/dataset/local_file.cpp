#include "runtime/dataset/local_file.hpp"

#include "runtime/base/read_at.hpp"
#include "runtime/dataset/file_reader.hpp"

#include <fcntl.h>

#include <cerrno>

namespace penstock {
namespace {

unique_fd open_without_waiting(const std::string& path) {
  return unique_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

}  // namespace

result<std::unique_ptr<local_file>> local_file::open(const std::string& path) {
  unique_fd fd = open_without_waiting(path);
  if (!fd) return refuse_os(errc::io, errno, "cannot be opened");
  struct ::stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return refuse_os(errc::io, errno, "cannot be examined");
  if (!S_ISREG(facts.st_mode)) return refuse(errc::dataset, "is {}, not a file", kind_of_file(facts.st_mode));
  auto made = std::make_unique<local_file>(path, static_cast<std::uint64_t>(facts.st_size), modified_ns_of(facts));
  made->fd_ = std::move(fd);
  return made;
}

bool local_file::is_as_listed(const struct ::stat& facts) const noexcept {
  if (check_ == file_check::none) return true;
  return bytes_ == static_cast<std::uint64_t>(facts.st_size) &&
         (check_ != file_check::size_and_time || modified_ns_ == modified_ns_of(facts));
}

result<void> local_file::check_unchanged() {
  if (!fd_) fd_ = open_without_waiting(path_);
  if (!fd_) return refuse_os(errc::io, errno, "cannot be opened");
  struct ::stat facts {};
  if (::fstat(fd_.get(), &facts) != 0) {
    const int os_code = errno;
    fd_.reset();
    return refuse_os(errc::io, os_code, "cannot be examined");
  }
  const bool is_file = S_ISREG(facts.st_mode);
  if (is_file && is_as_listed(facts)) return {};
  fd_.reset();
  if (!is_file) return refuse(errc::io, "is {}, not a file", kind_of_file(facts.st_mode));
  return refuse(errc::io,
                "changed since it was indexed ({} bytes then, {} now): start the session again when it is complete", bytes_,
                facts.st_size);
}

result<void> local_file::read(std::uint64_t at, std::span<std::byte> into) {
  if (!fd_ || check_ == file_check::size_and_time)
    if (auto ok = check_unchanged(); !ok) return ok;
  const read_part got = read_at(fd_.get(), at, into);
  if (got.error != 0) {
    fd_.reset();
    return refuse_os(errc::io, got.error, "cannot be read");
  }
  if (got.bytes < into.size())
    return refuse(errc::io, "ends at byte {}, but was {} bytes long when it was indexed", at + got.bytes, bytes_);
  return {};
}

}  // namespace penstock
