#include "runtime/base/write_all.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace penstock {

int write_all(int fd, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      static_cast<void>(::poll(&room, 1, -1));  // write() says what is wrong
      continue;
    }
    if (written < 0) return errno;
    // No known file system returns 0 here without an error; treat it as an error to avoid an endless loop.
    if (written == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace penstock
