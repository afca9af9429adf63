#include "runtime/base/fd.hpp"

#include <unistd.h>

namespace penstock {

void unique_fd::reset(int fd) noexcept {
  // Do not retry after EINTR: Linux has closed the descriptor even then.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace penstock
