#include "actors/gpu_owner/journal_sink.hpp"

#include "runtime/base/text.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::gpu_owner {

result<journal_sink> journal_sink::open(const std::string& path) {
  unique_fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return refuse_os(errc::sink, errno, fmt::format("opening the journal '{}'", printable(path)));
  journal_sink made(std::move(file), path);
  if (auto ok = made.append(fmt::format("{{\"owner\":{}}}\n", ::getpid())); !ok)
    return tl::unexpected(std::move(ok.error()));
  return made;
}

result<void> journal_sink::write(const Batch& batch) {
  return append(fmt::format(
      "{{\"owner\":{},\"epoch\":{},\"batch\":{},\"samples\":[{}],\"digest\":\"{:016x}\"}}\n", ::getpid(),
      batch.epoch(), batch.sequence(), fmt::join(batch.samples(), ","), batch.digest()));
}

result<void> journal_sink::append(const std::string& line) {
  if (const int code = file_.append(line); code != 0)
    return refuse_os(errc::sink, code, fmt::format("writing the journal '{}'", printable(path_)));
  return {};
}

}  // namespace penstock::gpu_owner
