#include "runtime/base/home_process.hpp"

#include <penstock/error.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <string>

namespace penstock {
namespace {

static_assert(std::atomic<pid_t>::is_always_lock_free);

/// Null if the kernel has no memory left or does not support MADV_WIPEONFORK.
std::atomic<pid_t>* mark_of_this_process() noexcept {
  static std::atomic<pid_t>* const mark = []() -> std::atomic<pid_t>* {
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    if (::madvise(page, bytes, MADV_WIPEONFORK) == 0) return new (page) std::atomic<pid_t>(0);
    ::munmap(page, bytes);
    return nullptr;
  }();
  return mark;
}

}  // namespace

home_process::home_process() noexcept : pid_(::getpid()), here_(mark_of_this_process()) {
  // In a child, the kernel has cleared the mark.
  if (std::atomic<pid_t>* const mark = mark_of_this_process()) mark->store(pid_, std::memory_order_relaxed);
}

void home_process::refuse(std::string_view what) const {
  throw error({errc::usage,
               "this " + std::string(what) + " belongs to process " + std::to_string(pid_) + ", from which this one was forked", 0});
}

}  // namespace penstock
