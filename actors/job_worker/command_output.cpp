#include "actors/job_worker/command_output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace penstock::job_worker {

int captured_output::open(const std::string& file) {
  if (!file.empty()) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return errno;
    write_.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!write_) return errno;
    file_.reset(::fcntl(write_.get(), F_DUPFD_CLOEXEC, 0));
    return file_ ? 0 : errno;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
  read_.reset(ends[0]);
  write_.reset(ends[1]);
  return ::fcntl(read_.get(), F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

void captured_output::take() {
  std::array<char, 64 * 1024> piece;
  while (read_) {
    const ssize_t bytes = ::read(read_.get(), piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes <= 0) return read_.reset();
    const auto count = static_cast<std::uint64_t>(bytes);
    output_.written += count;
    output_.kept.append(piece.data(), std::min(count, most_ - output_.kept.size()));
  }
}

void captured_output::read_file() {
  struct stat facts {};
  if (::fstat(file_.get(), &facts) != 0) return;
  output_.written = static_cast<std::uint64_t>(facts.st_size);
  output_.kept.resize(std::min(output_.written, most_));
  std::size_t done = 0;
  while (done < output_.kept.size()) {
    const ssize_t bytes = ::pread(file_.get(), output_.kept.data() + done, output_.kept.size() - done,
                                  static_cast<off_t>(done));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    done += static_cast<std::size_t>(bytes);
  }
  output_.kept.resize(done);
}

protocol::command_output captured_output::finish() {
  file_ ? read_file() : take();
  return std::move(output_);
}

}  // namespace penstock::job_worker
