#include "runtime/base/write_all.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace penstock {

written_part write_what_fits(int fd, std::span<const std::byte> bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      static_cast<void>(::poll(&room, 1, -1));  // if poll() failed, write() reports why
      continue;
    }
    if (written < 0) return {done, errno};
    // No known file system returns 0 here without an error. Treat it as an error, to avoid an endless loop.
    if (written == 0) return {done, EIO};
    done += static_cast<std::size_t>(written);
  }
  return {done, 0};
}

}  // namespace penstock
