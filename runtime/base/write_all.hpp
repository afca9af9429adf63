// Writes a whole buffer to a descriptor, across partial writes and EINTR. Used for all files, sinks and
// terminals.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace penstock {

/// Writes all bytes, and waits for room also where the descriptor itself would not (O_NONBLOCK, which any process that shares it
/// can set). Returns 0, or the errno of the failed call, in which case some
/// of the bytes may have been written. Blocks as long as there is no room.
[[nodiscard]] int write_all(int fd, std::span<const std::byte> bytes) noexcept;
[[nodiscard]] inline int write_all(int fd, std::string_view text) noexcept {
  return write_all(fd, std::as_bytes(std::span(text)));
}

}  // namespace penstock
