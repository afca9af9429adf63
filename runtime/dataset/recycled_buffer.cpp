#include "runtime/dataset/recycled_buffer.hpp"

#include "runtime/base/units.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace penstock {
namespace {

constexpr std::size_t small_enough = 256 * KiB;  // not worth giving back
constexpr unsigned window = 32;

}  // namespace

recycled_buffer::recycled_buffer(recycled_buffer&& other) noexcept {
  *this = std::move(other);
}

recycled_buffer& recycled_buffer::operator=(recycled_buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(capacity_, other.capacity_);
  std::swap(largest_lately_, other.largest_lately_);
  std::swap(calls_, other.calls_);
  return *this;
}

recycled_buffer::~recycled_buffer() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
}

std::byte* recycled_buffer::take(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  largest_lately_ = std::max(largest_lately_, bytes);
  if (bytes > capacity_) {
    // A little room to spare: sizes of pictures vary, and a fresh mapping costs page faults.
    resize(bytes + bytes / 8);
  } else if (++calls_ >= window) {
    if (capacity_ > small_enough && largest_lately_ < capacity_ / 4)
      resize(largest_lately_ + largest_lately_ / 8);
    calls_ = 0;
    largest_lately_ = bytes;
  }
  return memory_;
}

void recycled_buffer::resize(std::size_t bytes) {
  // mmap and not malloc: munmap gives the pages back for certain, whatever the heap looks like.
  const std::size_t rounded = round_up(bytes, 4 * KiB);
  if (memory_ != nullptr) ::munmap(std::exchange(memory_, nullptr), std::exchange(capacity_, 0));
  void* const fresh = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(fresh);
  capacity_ = rounded;
}

}  // namespace penstock
