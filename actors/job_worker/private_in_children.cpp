#include "actors/job_worker/private_in_children.hpp"

#include "runtime/base/check.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::job_worker {
namespace {

struct shared_range {
  void* address = nullptr;  // null: unused
  std::size_t bytes = 0;
  int fd = -1;
  off_t offset = 0;
};

// Enough for as many slots as the flight recorder can name, plus one result. Static: the child must not
// allocate.
std::array<shared_range, 1024 + 1> ranges;

/// Runs in the child, before fork() returns there.
void copy_on_write() {
  for (const shared_range& one : ranges) {
    if (one.address == nullptr) continue;
    const int flags = MAP_PRIVATE | MAP_FIXED;
    if (::mmap(one.address, one.bytes, PROT_READ | PROT_WRITE, flags, one.fd, one.offset) != MAP_FAILED)
      continue;
    // If copying fails, map inaccessible memory instead.
    if (::mmap(one.address, one.bytes, PROT_NONE, flags | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) ::_exit(1);
  }
}

}  // namespace

private_in_children::private_in_children(std::span<std::byte> range, int fd, std::uint64_t offset) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, copy_on_write);
  PENSTOCK_CHECK(registered == 0, "pthread_atfork: {}", registered);
  const auto unused = std::ranges::find(ranges, nullptr, &shared_range::address);
  PENSTOCK_CHECK(unused != ranges.end(), "more than {} ranges", ranges.size());
  *unused = {range.data(), range.size(), fd, static_cast<off_t>(offset)};
  entry_ = static_cast<std::size_t>(unused - ranges.begin());
}

private_in_children::private_in_children(private_in_children&& other) noexcept
    : entry_(std::exchange(other.entry_, nowhere)) {}

private_in_children& private_in_children::operator=(private_in_children&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

private_in_children::~private_in_children() {
  if (entry_ != nowhere) ranges[entry_] = {};
}

std::vector<private_in_children> private_slots(const arena::slots_view& slots, int fd,
                                               const arena::geometry& shape, std::uint32_t partition) {
  std::vector<private_in_children> all;
  for (std::uint32_t i = 0; i < slots.slots(); ++i)
    all.emplace_back(slots.slot(i), fd, shape.partition_offset(partition) + shape.slot_offset(i));
  return all;
}

}  // namespace penstock::job_worker
