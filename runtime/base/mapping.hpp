// Memory that the kernel maps for us, and memory files (memfd) that several processes map: the arena, the
// flight recorders, the dataset's index.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace penstock {

/// Owns a range of mapped memory. Move-only; unmaps itself.
class mapping {
 public:
  mapping() noexcept = default;
  mapping(std::byte* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  mapping(mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapping();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {address_, bytes_}; }
  [[nodiscard]] explicit operator bool() const noexcept { return address_ != nullptr; }

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

struct file_range {
  std::uint64_t offset = 0;  ///< a multiple of the page size
  std::uint64_t bytes = 0;
};

/// Maps a range of a file for reading and writing, shared with other mappings. The descriptor may be
/// closed afterwards. Empty, with errno set, if the kernel refuses.
[[nodiscard]] mapping map_shared(int fd, file_range range) noexcept;
/// Maps a range of a file for reading. The mapping is private, because before Linux 6.7 a memory file
/// sealed against writing could not be mapped shared at all. Empty, with errno set, if the kernel refuses.
[[nodiscard]] mapping map_read_only(int fd, file_range range) noexcept;
/// Maps a range of a file, sealed or not, copy-on-write: a page that is written to becomes private to this
/// mapping. Empty, with errno set, if the kernel refuses.
[[nodiscard]] mapping map_copy_on_write(int fd, file_range range) noexcept;
/// Zeroed private memory. Empty, with errno set, if the kernel refuses.
[[nodiscard]] mapping map_anonymous(std::size_t bytes) noexcept;

/// What sealing a memory file makes permanent, for every holder of its descriptor.
enum class seal { size, size_and_contents };

/// An empty memory file, close-on-exec, that can be sealed. `name` appears in /proc; `what` begins the error
/// message (errc::system): "creating the arena: ...".
result<unique_fd> create_memory_file(const char* name, std::string_view what);

/// Cannot be undone. Once the size is sealed, touching a mapping never raises SIGBUS. Fails with
/// errc::system if the kernel refuses, for example because the contents are mapped writable.
result<void> seal_memory_file(int fd, seal how, std::string_view what);

/// Whether a descriptor is a memory file with at least this seal. False for anything else.
[[nodiscard]] bool is_sealed(int fd, seal how) noexcept;

}  // namespace penstock
