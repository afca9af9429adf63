// The arena: one sealed memfd that holds every sample's bytes between the decoder and the device. Workers
// write it, the GPU owner or the DMA engine reads it; there is no copy in between. Created by the session.
#pragma once

#include "runtime/arena/reservation.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::arena {

/// The session's side. The file exists from the start, so that workers can inherit it; its size is known only
/// after the first worker has described the dataset. Not thread-safe.
class arena {
 public:
  /// An empty memfd, close-on-exec. `node`: the memory node that
  /// reserve() prefers. Fails with errc::system if the kernel refuses.
  static result<arena> create(std::optional<int> node = {});

  /// Sets the size and seals it: the file can no longer shrink or grow, so touching a mapping never raises
  /// SIGBUS. Call check_memory first: a file beyond RLIMIT_FSIZE raises a signal instead of returning an
  /// error.
  result<void> size_and_seal(const geometry& shape);

  /// Allocates the pages of slots, so that writing them later cannot fail. Takes about 0.3 s per GiB.
  /// Idempotent.
  result<void> reserve(const slot_range& slots);
  /// Allocates the pages of all slots of a partition.
  result<void> reserve(std::uint32_t partition) { return reserve({partition, 0, shape_.slots}); }

  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  [[nodiscard]] const geometry& shape() const noexcept { return shape_; }

 private:
  arena(unique_fd file, std::optional<int> node) noexcept : file_(std::move(file)), node_(node) {}

  unique_fd file_;
  std::optional<int> node_;
  geometry shape_;
};

/// The owner's view: a whole partition as one range, including guard pages. Readable and writable, because
/// CUDA registers only writable memory. `fd` may be closed afterwards.
result<mapping> map_partition(int fd, const geometry& shape, std::uint32_t partition);

/// The worker's view: its own slots, each followed by a page that faults.
class slots_view {
 public:
  /// Refuses a file that is not sealed or has a different size, because such a file is not from the session.
  static result<slots_view> map(int fd, const geometry& shape, std::uint32_t partition);

  [[nodiscard]] std::span<std::byte> slot(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t slots() const noexcept { return shape_.slots; }

 private:
  slots_view(mapping whole, const geometry& shape) : whole_(std::move(whole)), shape_(shape) {}

  mapping whole_;  // the address range; guard pages stay inaccessible
  geometry shape_;
};

}  // namespace penstock::arena
