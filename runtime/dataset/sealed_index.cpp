#include "runtime/dataset/sealed_index.hpp"

#include "runtime/base/units.hpp"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

namespace penstock {
namespace {

constexpr std::string_view name_for_people = "the dataset's index";

}  // namespace

result<unique_fd> create_index(std::string_view of, std::uint64_t bytes) {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    return refuse(errc::out_of_memory,
                  "the index of {} needs a file of {}, but the limit on file sizes (ulimit -f) is {}", of,
                  bytes_for_people(bytes), bytes_for_people(limit.rlim_cur));
  }
  return create_memory_file("penstock-index", name_for_people);
}

result<void> seal_index_file(int fd) {
  return seal_memory_file(fd, seal::size_and_contents, name_for_people);
}

result<mapping> map_index(int fd, std::string_view what, std::size_t header_bytes) {
  if (!is_sealed(fd, seal::size_and_contents)) return refuse(errc::protocol, "{} is not sealed", what);
  struct ::stat facts {};
  if (::fstat(fd, &facts) != 0) return refuse_os(errc::system, errno, fmt::format("examining {}", what));
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes < header_bytes) return refuse(errc::protocol, "{} is only {} bytes long", what, bytes);
  mapping memory = map_read_only(fd, {0, bytes});
  if (!memory) return refuse_os(errc::system, errno, fmt::format("mapping {}", what));
  return memory;
}

}  // namespace penstock
