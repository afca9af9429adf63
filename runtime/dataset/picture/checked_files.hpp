// Records which files of an image folder have passed the check of jpeg_check.hpp, in memory that all workers of a
// session share. A file's coded data is then read to its end only once, not in every epoch. Made by the session, used
// by the image-folder dataset.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/mapping.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

/// Remembers contents and not names, as a hash of the bytes that passed. A file is checked again if its bytes have
/// changed.
class checked_files {
 public:
  /// For the session. Fails with errc::system if the kernel refuses.
  static result<unique_fd> make(std::uint64_t samples);

  /// An object that remembers nothing.
  checked_files() noexcept = default;
  /// Maps the memory of make(). Remembers nothing if the descriptor is not from make() with the same number of
  /// samples. The descriptor may be closed afterwards.
  checked_files(int fd, std::uint64_t samples) noexcept;

  [[nodiscard]] static std::uint64_t hash_of(std::span<const std::byte> file) noexcept;
  [[nodiscard]] bool holds(std::uint64_t index, std::uint64_t hash) const noexcept;
  void add(std::uint64_t index, std::uint64_t hash) noexcept;

 private:
  [[nodiscard]] std::uint64_t* entry(std::uint64_t index) const noexcept;

  mapping memory_;  // a hash for each sample; 0: not checked
};

}  // namespace penstock
