#include "actors/gpu_owner/journal_sink.hpp"

#include "runtime/base/text.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::gpu_owner {
namespace {

bool ends_in_mid_line(int file) {
  struct stat facts {};
  char last = '\n';
  return ::fstat(file, &facts) == 0 && facts.st_size > 0 && ::pread(file, &last, 1, facts.st_size - 1) == 1 &&
         last != '\n';
}

}  // namespace

result<journal_sink> journal_sink::open(const std::string& path) {
  unique_fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return refuse_os(errc::sink, errno, fmt::format("opening the journal '{}'", printable(path)));
  journal_sink made(std::move(file), path);
  const char* const first = ends_in_mid_line(made.file_.get()) ? "\n" : "";
  if (auto ok = made.append(fmt::format("{}{{\"owner\":{}}}\n", first, ::getpid())); !ok)
    return tl::unexpected(std::move(ok.error()));
  return made;
}

result<void> journal_sink::write(const Batch& batch) const {
  return append(fmt::format(
      "{{\"owner\":{},\"epoch\":{},\"batch\":{},\"samples\":[{}],\"digest\":\"{:016x}\"}}\n", ::getpid(),
      batch.epoch(), batch.sequence(), fmt::join(batch.samples(), ","), batch.digest()));
}

result<void> journal_sink::append(const std::string& line) const {
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t bytes = ::write(file_.get(), line.data() + done, line.size() - done);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0)
      return refuse_os(errc::sink, errno, fmt::format("writing the journal '{}'", printable(path_)));
    done += static_cast<std::size_t>(bytes);
  }
  return {};
}

}  // namespace penstock::gpu_owner
