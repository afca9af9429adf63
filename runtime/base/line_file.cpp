#include "runtime/base/line_file.hpp"

#include "runtime/base/write_all.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>
#include <utility>

namespace penstock {
namespace {

/// The last bytes of a regular file that is open for reading. Empty for any other file, and for a file with
/// fewer bytes.
std::string last_bytes(int file, std::size_t count) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || std::cmp_less(facts.st_size, count)) return {};
  std::string bytes(count, '\0');
  const ssize_t got = ::pread(file, bytes.data(), count, facts.st_size - static_cast<off_t>(count));
  return std::cmp_equal(got, count) ? bytes : std::string();
}

}  // namespace

line_file::line_file(unique_fd file) : file_(std::move(file)) {
  const std::string last = last_bytes(fd(), 1);
  in_mid_line_ = !last.empty() && last != "\n";
}

int line_file::append(std::string_view lines) {
  const std::string ended = in_mid_line_ ? "\n" + std::string(lines) : std::string();
  const std::string_view text = in_mid_line_ ? std::string_view(ended) : lines;
  const written_part part = write_what_fits(fd(), std::as_bytes(std::span(text)));
  if (part.error == 0) {
    in_mid_line_ = false;
  } else if (part.bytes > 0 && !take_back(text.substr(0, part.bytes))) {
    in_mid_line_ = text[part.bytes - 1] != '\n';
  }
  return part.error;
}

int line_file::cut(std::uint64_t bytes) {
  if (::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) return errno;
  in_mid_line_ = false;
  return 0;
}

/// Returns false if the file does not end with `written`.
bool line_file::take_back(std::string_view written) const {
  struct stat facts {};
  return last_bytes(fd(), written.size()) == written && ::fstat(fd(), &facts) == 0 &&
         ::ftruncate(fd(), facts.st_size - static_cast<off_t>(written.size())) == 0;
}

}  // namespace penstock
