#include "python/core/copied_in_children.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <system_error>

namespace penstock::python {
namespace {

struct all_ranges {
  std::mutex mutex;  // held during a fork
  std::list<range_for_children> ranges;
};

/// Never destroyed: a batch may outlive static objects.
all_ranges& of_process() {
  static auto* const all = new all_ranges();
  return *all;
}

/// The pages of a range, and where the range begins in them.
struct page_span {
  explicit page_span(std::span<const std::byte> range) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(range.data());
    before = begin % page;
    address = reinterpret_cast<void*>(begin - before);
    bytes = (before + range.size() + page - 1) / page * page;
  }
  void* address = nullptr;
  std::size_t before = 0;
  std::size_t bytes = 0;
};

void copy_in_parent() {
  all_ranges& all = of_process();
  all.mutex.lock();
  for (range_for_children& one : all.ranges) {
    const page_span pages(one.bytes);
    void* const made = ::mmap(nullptr, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) continue;
    one.copy = static_cast<std::byte*>(made);
    std::memcpy(one.copy + pages.before, one.bytes.data(), one.bytes.size());
  }
}

void drop_copies_in_parent() {
  all_ranges& all = of_process();
  for (range_for_children& one : all.ranges) {
    if (one.copy == nullptr) continue;
    ::munmap(one.copy, page_span(one.bytes).bytes);
    one.copy = nullptr;
  }
  all.mutex.unlock();
}

/// Moves a copy over its range. The bytes around the range on its first and last page stay as they are.
bool move_copy(const range_for_children& one, const page_span& pages) {
  if (one.copy == nullptr) return false;
  const std::size_t end = pages.before + one.bytes.size();
  std::memcpy(one.copy, pages.address, pages.before);
  std::memcpy(one.copy + end, static_cast<const std::byte*>(pages.address) + end, pages.bytes - end);
  return ::mremap(one.copy, pages.bytes, pages.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages.address) != MAP_FAILED;
}

/// Runs in the child, before fork() returns there.
void use_copies_in_child() {
  all_ranges& all = of_process();
  for (range_for_children& one : all.ranges) {
    const page_span pages(one.bytes);
    // Without memory for a copy, the range becomes inaccessible: reading it would give another batch's content.
    if (!move_copy(one, pages) &&
        ::mmap(pages.address, pages.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      ::_exit(1);
    one.copy = nullptr;
  }
  all.mutex.unlock();
}

}  // namespace

copied_in_children::copied_in_children(std::span<const std::byte> bytes) {
  static const int registered = ::pthread_atfork(copy_in_parent, drop_copies_in_parent, use_copies_in_child);
  if (registered != 0) throw std::system_error(registered, std::generic_category(), "pthread_atfork");
  all_ranges& all = of_process();
  const std::lock_guard hold(all.mutex);
  entry_ = all.ranges.insert(all.ranges.end(), {bytes, nullptr});
}

copied_in_children::~copied_in_children() {
  all_ranges& all = of_process();
  const std::lock_guard hold(all.mutex);
  all.ranges.erase(entry_);
}

}  // namespace penstock::python
