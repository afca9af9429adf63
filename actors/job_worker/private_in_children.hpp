// Shared memory that processes forked by user code must not write into: such a child gets a private copy of it, under
// the same address. It can read its argument; what it writes to a result nobody sees. Used by job_main for the slots and
// by result_room for memory files.
#pragma once

#include "runtime/arena/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::job_worker {

/// As long as it lives. Made and destroyed by one thread; any thread may fork. Children that fork() or its like make, not
/// those of vfork, posix_spawn (which execute a program at once) and bare clone. Move-only.
class private_in_children {
 public:
  /// `range` maps the file `fd` from `offset` on; both stay as they are.
  private_in_children(std::span<std::byte> range, int fd, std::uint64_t offset);
  private_in_children(private_in_children&& other) noexcept;
  private_in_children& operator=(private_in_children&& other) noexcept;
  ~private_in_children();

 private:
  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t entry_ = nowhere;
};

/// All slots of a worker. `fd` is the arena's.
std::vector<private_in_children> private_slots(const arena::slots_view& slots, int fd,
                                               const arena::geometry& shape, std::uint32_t partition);

}  // namespace penstock::job_worker
