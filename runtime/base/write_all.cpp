#include "runtime/base/write_all.hpp"

#include <unistd.h>

#include <cerrno>

namespace penstock {

int write_all(int fd, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    // Nothing is written without an error by no file system that we know; it must not become an endless loop.
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace penstock
