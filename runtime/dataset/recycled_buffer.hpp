// A buffer that is reused for every sample. It shrinks again after a huge picture, so that a worker's private memory
// stays close to what its pictures need. Used by file reading, decoding and resizing.
#pragma once

#include "runtime/base/mapping.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

/// Move-only owner of anonymous pages. Any take() may discard the contents.
class recycled_buffer {
 public:
  /// At least `bytes` bytes, page-aligned, valid until the next call. Throws std::bad_alloc when the kernel
  /// refuses. Shrinks when none of the last 32 calls needed more than a quarter of it.
  std::byte* take(std::size_t bytes);
  std::uint8_t* take_u8(std::size_t bytes) { return reinterpret_cast<std::uint8_t*>(take(bytes)); }

  [[nodiscard]] std::size_t capacity() const noexcept { return memory_.bytes().size(); }

 private:
  void resize(std::size_t bytes);

  mapping memory_;
  std::size_t largest_lately_ = 0;
  unsigned calls_ = 0;
};

}  // namespace penstock
