#include "runtime/arena/arena.hpp"

#include "runtime/base/check.hpp"
#include "runtime/base/counted.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace penstock::arena {
namespace {

result<void> check_page_size() {
  const long page = ::sysconf(_SC_PAGESIZE);
  if (page == static_cast<long>(page_bytes)) return {};
  return refuse(errc::system, "the arena needs memory pages of {} bytes, but this machine's have {}", page_bytes,
                page);
}

/// While an object of this class exists, the thread's allocations prefer a memory node. Best effort: containers may
/// forbid the system call.
class node_preference {
 public:
  explicit node_preference(std::optional<int> node) {
    if (!node || *node >= static_cast<int>(nodes_max) ||
        ::syscall(SYS_get_mempolicy, &mode_, before_.data(), nodes_max + 1, nullptr, 0) != 0)
      return;
    node_mask wanted{};
    wanted[static_cast<std::size_t>(*node) / bits] |= 1UL << (static_cast<std::size_t>(*node) % bits);
    changed_ = ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, wanted.data(), nodes_max + 1) == 0;
  }
  ~node_preference() {
    if (changed_) ::syscall(SYS_set_mempolicy, mode_, before_.data(), nodes_max + 1);
  }
  node_preference(const node_preference&) = delete;
  node_preference& operator=(const node_preference&) = delete;

 private:
  static constexpr std::size_t nodes_max = 1024;
  static constexpr std::size_t bits = 8 * sizeof(unsigned long);
  using node_mask = std::array<unsigned long, nodes_max / bits + 1>;

  int mode_ = MPOL_DEFAULT;
  node_mask before_{};
  bool changed_ = false;
};

}  // namespace

result<arena> arena::create(std::optional<int> node) {
  auto file = create_memory_file("penstock-arena", "the arena");
  if (!file) return tl::unexpected(std::move(file.error()));
  return arena(std::move(*file), node);
}

result<void> arena::size_and_seal(const geometry& shape) {
  PENSTOCK_CHECK(shape_.partitions == 0, "the arena already has {} partitions", shape_.partitions);
  if (auto ok = check_page_size(); !ok) return ok;
  if (::ftruncate(file_.get(), static_cast<off_t>(shape.bytes())) != 0) {
    return refuse_os(errc::out_of_memory, errno,
                     fmt::format("setting the size of the arena to {}", bytes_for_people(shape.bytes())));
  }
  if (auto ok = seal_memory_file(file_.get(), seal::size, "the arena"); !ok) return ok;
  shape_ = shape;
  return {};
}

result<void> arena::reserve(const slot_range& slots) {
  PENSTOCK_CHECK(slots.partition < shape_.partitions, "partition {} of {}", slots.partition, shape_.partitions);
  PENSTOCK_CHECK(slots.first < slots.end && slots.end <= shape_.slots, "slots {} to {} of {}", slots.first, slots.end, shape_.slots);
  const std::uint64_t offset = shape_.partition_offset(slots.partition) + shape_.slot_offset(slots.first);
  const std::uint64_t bytes = shape_.slot_offset(slots.end) - shape_.slot_offset(slots.first);
  const node_preference near(node_);
  int status = 0;
  do {
    status = ::fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  if (status == 0) return {};
  return refuse_os(errc::out_of_memory, errno,
                   fmt::format("reserving {} of shared memory for worker {} ({} of {})",
                               bytes_for_people(shape_.partition_bytes()), slots.partition,
                               counted(shape_.slots, "slot"), bytes_for_people(shape_.slot_bytes)));
}

result<mapping> map_partition(int fd, const geometry& shape, std::uint32_t partition) {
  PENSTOCK_CHECK(partition < shape.partitions, "partition {} of {}", partition, shape.partitions);
  mapping mapped = map_shared(fd, {shape.partition_offset(partition), shape.partition_bytes()});
  if (!mapped) {
    return refuse_os(errc::out_of_memory, errno,
                     fmt::format("mapping partition {} of the arena ({})", partition,
                                 bytes_for_people(shape.partition_bytes())));
  }
  return mapped;
}

result<slots_view> slots_view::map(int fd, const geometry& shape, std::uint32_t partition) {
  PENSTOCK_CHECK(partition < shape.partitions, "partition {} of {}", partition, shape.partitions);
  if (auto ok = check_page_size(); !ok) return tl::unexpected(std::move(ok.error()));
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return refuse_os(errc::protocol, errno, "reading the size of the arena");
  if (static_cast<std::uint64_t>(facts.st_size) != shape.bytes() || !is_sealed(fd, seal::size)) {
    return refuse(errc::protocol,
                  "the arena has {} bytes and the seals {:#x}, but the session announced {} sealed bytes",
                  facts.st_size, ::fcntl(fd, F_GET_SEALS), shape.bytes());
  }
  // First reserve the whole range without access, then map each
  // slot over it. The pages left over are the guard pages.
  void* range =
      ::mmap(nullptr, shape.partition_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    return refuse_os(errc::out_of_memory, errno, "reserving address space for the slots");
  mapping whole(static_cast<std::byte*>(range), shape.partition_bytes());
  for (std::uint32_t i = 0; i < shape.slots; ++i) {
    const auto offset = static_cast<off_t>(shape.partition_offset(partition) + shape.slot_offset(i));
    void* at = whole.bytes().data() + shape.slot_offset(i);
    if (::mmap(at, shape.slot_mapped_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) ==
        MAP_FAILED) {
      return refuse_os(errc::out_of_memory, errno,
                       fmt::format("mapping slot {} ({})", i, bytes_for_people(shape.slot_bytes)));
    }
  }
  return slots_view(std::move(whole), shape);
}

std::span<std::byte> slots_view::slot(std::uint32_t index) const {
  PENSTOCK_CHECK(index < shape_.slots, "slot {} of {}", index, shape_.slots);
  return whole_.bytes().subspan(shape_.slot_offset(index), shape_.slot_bytes);
}

}  // namespace penstock::arena
