// Duplicates descriptors to high numbers, because user code may close the low ones.
#pragma once

#include "runtime/base/fd.hpp"

#include <fcntl.h>

namespace penstock::child {

/// A duplicate numbered 200 or higher, or lower if the limit on open files (ulimit -n) forbids that. Empty if
/// no descriptor is free or `fd` is invalid. Close-on-exec.
inline unique_fd high_duplicate(int fd) noexcept {
  for (int from = 200; from > 0; from /= 2) {
    if (const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, from); copy >= 0) return unique_fd(copy);
  }
  return unique_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

}  // namespace penstock::child
