#include "tools/penstock/jobs/output_stream.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace penstock::cli {

output_stream::output_stream(int fd) : fd_(fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return;
  if (S_ISSOCK(facts.st_mode)) kind_ = kind::socket;
  if (!S_ISFIFO(facts.st_mode) && !S_ISCHR(facts.st_mode)) return;
  own_.reset(
      ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  // If the pipe belongs to another user, it cannot be opened again. Pieces
  // are then small enough that poll() guarantees room for one.
  kind_ = own_ ? kind::never_waits : kind::in_pieces;
}

ssize_t output_stream::write_some(std::string_view text) const noexcept {
  switch (kind_) {
    case kind::waits: break;
    case kind::never_waits: return ::write(own_.get(), text.data(), text.size());
    case kind::in_pieces: return ::write(fd_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    case kind::socket: return ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  return ::write(fd_, text.data(), text.size());
}

/// Returns 0 or ETIMEDOUT.
int output_stream::wait_for_room() const {
  while (true) {
    const auto patience = static_cast<int>(patience_.load());
    // Once a deadline is set, there is no further news to wait for.
    std::array<pollfd, 2> awaited{
        {{own_ ? own_.get() : fd_, POLLOUT, 0}, {patience < 0 ? news_.fd() : -1, POLLIN, 0}}};
    const int ready = ::poll(awaited.data(), awaited.size(), patience);
    if (ready == 0) return ETIMEDOUT;
    if (ready > 0 && awaited[0].revents != 0) return 0;  // there is room, or an error, which write() reports
  }
}

int output_stream::write(std::string_view text) {
  while (!text.empty()) {
    if (kind_ == kind::in_pieces) {
      if (const int why = wait_for_room(); why != 0) return why;
    }
    const ssize_t done = write_some(text);
    if (done > 0) {
      text.remove_prefix(static_cast<std::size_t>(done));
    } else if (done == 0) {
      return EIO;
    } else if (errno == EAGAIN) {
      if (const int why = wait_for_room(); why != 0) return why;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void output_stream::give_up_after(std::chrono::milliseconds patience) noexcept {
  patience_ = patience.count();
  news_.raise();
}

}  // namespace penstock::cli
