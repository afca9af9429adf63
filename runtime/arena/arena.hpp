// The arena: one sealed memfd that holds every sample's bytes between the decoder and the device. Workers
// write it, the GPU owner reads it (or the DMA engine does), nobody copies it. Created by the session.
#pragma once

#include "runtime/arena/geometry.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::arena {

/// The session's end. The file exists from the beginning, so that workers can inherit it; its size is known
/// only when the first worker has described the dataset. Not thread-safe.
class arena {
 public:
  /// An empty memfd, close-on-exec. Refuses (errc::system) when the kernel does.
  static result<arena> create();

  /// Gives it its size and seals it: nobody can shrink or grow it any more, so a mapping never turns into
  /// SIGBUS. Call check_memory first: a file beyond RLIMIT_FSIZE would be a signal, not an error.
  result<void> size_and_seal(const geometry& shape);

  /// Allocates the pages of a partition, so that writing them later cannot fail. Takes about 0.3 s a GiB.
  /// Idempotent.
  result<void> reserve(std::uint32_t partition);

  /// Gives the pages back. Only after the device has unregistered the partition: a registered range that is
  /// punched makes the GPU read old bytes, silently.
  result<void> punch(std::uint32_t partition);

  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  [[nodiscard]] const geometry& shape() const noexcept { return shape_; }

 private:
  explicit arena(unique_fd file) noexcept : file_(std::move(file)) {}

  unique_fd file_;
  geometry shape_;
};

/// The owner's view: a whole partition as one range, guard pages included, readable and writable (CUDA
/// registers only writable memory for reading by the device). `fd` may be closed afterwards.
result<mapping> map_partition(int fd, const geometry& shape, std::uint32_t partition);

/// The worker's view: its own slots, each followed by a page that faults.
class slots_view {
 public:
  /// Refuses a file that is not sealed or has another size: the session would not have made it.
  static result<slots_view> map(int fd, const geometry& shape, std::uint32_t partition);

  [[nodiscard]] std::span<std::byte> slot(std::uint32_t index) const;
  [[nodiscard]] std::uint32_t slots() const noexcept { return shape_.slots; }

 private:
  slots_view(mapping whole, const geometry& shape) : whole_(std::move(whole)), shape_(shape) {}

  mapping whole_;  // the address range; guard pages stay inaccessible
  geometry shape_;
};

}  // namespace penstock::arena
