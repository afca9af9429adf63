#include "runtime/process/core_wait.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace penstock::process {

nanoseconds core_wait_meter::read() noexcept {
  if (!file_) file_ = unique_fd(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  std::array<char, 96> bytes;
  const ssize_t size = file_ ? ::pread(file_.get(), bytes.data(), bytes.size(), 0) : 0;
  if (size <= 0) return nanoseconds(0);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  const std::size_t second = text.find(' ');  // the second number follows the time on a core
  std::int64_t waited = 0;
  if (second != std::string_view::npos) std::from_chars(text.data() + second + 1, text.data() + text.size(), waited);
  return nanoseconds(waited);
}

}  // namespace penstock::process
