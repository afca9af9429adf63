#include "runtime/base/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

namespace penstock {
namespace {

mapping map(std::size_t bytes, int protection, int flags, int fd, std::uint64_t offset) noexcept {
  void* const address = ::mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
  return address == MAP_FAILED ? mapping() : mapping(static_cast<std::byte*>(address), bytes);
}

constexpr int seals_of(seal how) noexcept {
  constexpr int size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  return how == seal::size ? size : size | F_SEAL_WRITE;
}

}  // namespace

mapping::~mapping() {
  if (address_ != nullptr) ::munmap(address_, bytes_);
}

mapping map_shared(int fd, file_range range) noexcept {
  return map(range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, range.offset);
}

mapping map_read_only(int fd, file_range range) noexcept {
  return map(range.bytes, PROT_READ, MAP_PRIVATE, fd, range.offset);
}

mapping map_copy_on_write(int fd, file_range range) noexcept {
  return map(range.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, range.offset);
}

mapping map_anonymous(std::size_t bytes) noexcept {
  return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

result<unique_fd> create_memory_file(const char* name, std::string_view what) {
  unique_fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return refuse_os(errc::system, errno, fmt::format("creating {} (memfd_create)", what));
  return file;
}

result<void> seal_memory_file(int fd, seal how, std::string_view what) {
  if (::fcntl(fd, F_ADD_SEALS, seals_of(how)) == 0) return {};
  return refuse_os(errc::system, errno, fmt::format("sealing {}", what));
}

bool is_sealed(int fd, seal how) noexcept {
  const int wanted = seals_of(how);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & wanted) == wanted;
}

}  // namespace penstock
