// Protects shared memory from processes forked by user code: a forked child gets a private copy at the same
// address. It can read its argument; its writes to a result have no effect. Used by job_main for the slots
// and by result_room for memory files.
#pragma once

#include "runtime/arena/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::job_worker {

/// Protects the range for the lifetime of the object. Create and destroy all objects on one thread; any
/// thread may fork. Covers fork() and functions built on it, but not vfork and posix_spawn (which execute a
/// program at once), nor a bare clone. Move-only.
class private_in_children {
 public:
  /// `range` maps the file `fd` from `offset`; both must stay valid and unchanged.
  private_in_children(std::span<std::byte> range, int fd, std::uint64_t offset);
  private_in_children(private_in_children&& other) noexcept;
  private_in_children& operator=(private_in_children&& other) noexcept;
  ~private_in_children();

 private:
  static constexpr std::size_t nowhere = ~std::size_t{0};
  std::size_t entry_ = nowhere;
};

/// Protects all slots of a worker. `fd` is the arena's.
std::vector<private_in_children> private_slots(const arena::slots_view& slots, int fd,
                                               const arena::geometry& shape, std::uint32_t partition);

}  // namespace penstock::job_worker
