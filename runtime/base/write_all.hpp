// Writing all of something to a descriptor: the kernel may take it in pieces, and a signal may interrupt it.
// Used by every sink, file and terminal of ours.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace penstock {

/// Writes every byte to a blocking descriptor, however many calls that takes; EINTR is retried. 0, or the
/// errno of the call that failed: then some of the bytes may have been written. As blocking as the descriptor
/// is.
[[nodiscard]] int write_all(int fd, std::span<const std::byte> bytes) noexcept;
[[nodiscard]] inline int write_all(int fd, std::string_view text) noexcept {
  return write_all(fd, std::as_bytes(std::span(text)));
}

}  // namespace penstock
