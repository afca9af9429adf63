#include "runtime/base/fd.hpp"

#include <unistd.h>

namespace penstock {

void unique_fd::reset(int fd) noexcept {
  // EINTR is not retried: on Linux the descriptor is gone either way.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace penstock
