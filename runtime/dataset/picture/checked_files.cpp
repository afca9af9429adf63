#include "runtime/dataset/picture/checked_files.hpp"

#include "runtime/base/xxh3.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace penstock {
namespace {

std::uint64_t bytes_of(std::uint64_t samples) noexcept {
  return std::max<std::uint64_t>(samples, 1) * sizeof(std::uint64_t);
}

}  // namespace

result<unique_fd> checked_files::make(std::uint64_t samples) {
  constexpr auto what = "creating the shared memory for checked files";
  auto made = create_memory_file("penstock-checked", what);
  if (!made) return made;
  if (::ftruncate(made->get(), static_cast<off_t>(bytes_of(samples))) != 0)
    return refuse_os(errc::system, errno, what);
  if (auto ok = seal_memory_file(made->get(), seal::size, what); !ok)
    return tl::unexpected(std::move(ok.error()));
  return made;
}

checked_files::checked_files(int fd, std::uint64_t samples) noexcept {
  struct ::stat facts {};
  if (fd < 0 || !is_sealed(fd, seal::size) || ::fstat(fd, &facts) != 0) return;
  if (static_cast<std::uint64_t>(facts.st_size) == bytes_of(samples))
    memory_ = map_shared(fd, {0, bytes_of(samples)});
}

std::uint64_t checked_files::hash_of(std::span<const std::byte> file) noexcept {
  return std::max<std::uint64_t>(xxh3_of(file), 1);
}

std::uint64_t* checked_files::entry(std::uint64_t index) const noexcept {
  if (index >= memory_.bytes().size() / sizeof(std::uint64_t)) return nullptr;
  return reinterpret_cast<std::uint64_t*>(memory_.bytes().data()) + index;
}

bool checked_files::holds(std::uint64_t index, std::uint64_t hash) const noexcept {
  std::uint64_t* const found = entry(index);
  return found != nullptr && std::atomic_ref(*found).load(std::memory_order_relaxed) == hash;
}

void checked_files::add(std::uint64_t index, std::uint64_t hash) noexcept {
  if (std::uint64_t* const found = entry(index))
    std::atomic_ref(*found).store(hash, std::memory_order_relaxed);
}

}  // namespace penstock
