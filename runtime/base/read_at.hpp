// Reads a whole range of a file, across partial reads and EINTR. The counterpart of write_all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

struct read_part {
  std::size_t bytes = 0;  ///< fewer than requested, with error 0: the file ends there
  int error = 0;          ///< errno of the call that failed after these bytes; 0: no call failed
};

/// Reads from byte `at` of the file until `into` is full, the
/// file ends or a call fails. Does not move the file's position.
[[nodiscard]] read_part read_at(int fd, std::uint64_t at, std::span<std::byte> into) noexcept;

}  // namespace penstock
