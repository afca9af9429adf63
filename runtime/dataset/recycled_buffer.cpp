#include "runtime/dataset/recycled_buffer.hpp"

#include "runtime/base/units.hpp"

#include <algorithm>
#include <new>

namespace penstock {
namespace {

constexpr std::size_t small_enough = 256 * KiB;  // not worth returning to the kernel
constexpr unsigned window = 32;

}  // namespace

std::byte* recycled_buffer::take(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  largest_lately_ = std::max(largest_lately_, bytes);
  if (bytes > capacity()) {
    // Allocate a little more, because sizes of pictures vary, and each new mapping causes page faults.
    resize(bytes + bytes / 8);
  } else if (++calls_ >= window) {
    if (capacity() > small_enough && largest_lately_ < capacity() / 4)
      resize(largest_lately_ + largest_lately_ / 8);
    calls_ = 0;
    largest_lately_ = bytes;
  }
  return memory_.bytes().data();
}

void recycled_buffer::resize(std::size_t bytes) {
  // Uses mmap instead of malloc, because munmap always returns the pages to the kernel; free may not.
  memory_ = mapping();  // free the old one first, so that the two never exist at the same time
  memory_ = map_anonymous(round_up(bytes, 4 * KiB));
  if (!memory_) throw std::bad_alloc();
}

}  // namespace penstock
