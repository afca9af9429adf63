// Writes a whole buffer to a descriptor, across partial writes and EINTR. Used for all files, sinks and
// terminals.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace penstock {

struct written_part {
  std::size_t bytes = 0;
  int error = 0;  ///< errno of the call that failed after these bytes; 0: all were written
};

/// Writes until a call fails. Blocks while there is no room, even if the descriptor is non-blocking: any
/// process that shares it can set O_NONBLOCK.
[[nodiscard]] written_part write_what_fits(int fd, std::span<const std::byte> bytes) noexcept;

/// Like write_what_fits(), for callers that need all bytes written. Returns 0, or the errno of the failed call,
/// in which case some of the bytes may have been written.
[[nodiscard]] inline int write_all(int fd, std::span<const std::byte> bytes) noexcept {
  return write_what_fits(fd, bytes).error;
}
[[nodiscard]] inline int write_all(int fd, std::string_view text) noexcept {
  return write_all(fd, std::as_bytes(std::span(text)));
}

}  // namespace penstock
