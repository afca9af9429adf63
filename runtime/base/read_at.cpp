#include "runtime/base/read_at.hpp"

#include <unistd.h>

#include <cerrno>

namespace penstock {

read_part read_at(int fd, std::uint64_t at, std::span<std::byte> into) noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {done, errno};
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return {done, 0};
}

}  // namespace penstock
