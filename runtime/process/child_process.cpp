#include "runtime/process/child_process.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

namespace penstock::process {
namespace {

constexpr std::size_t line_max = 4096;
constexpr std::size_t read_bytes = 16 * 1024;

// After SIGKILL only an uninterruptible system call takes longer; then it is left to init.
constexpr std::chrono::milliseconds time_to_die{2000};

// A flood must not keep the io_thread from everything else.
constexpr int reads_a_turn = 4;

}  // namespace

void output_tail::append(std::string_view piece, const std::function<void(std::string_view)>& line) {
  kept_.append(piece);
  if (kept_.size() > 2 * kept_bytes) kept_.erase(0, kept_.size() - kept_bytes);
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::size_t room = line_max - std::min(line_max, partial_.size());
    partial_.append(piece.substr(0, std::min(end, room)));
    if (end == std::string_view::npos) return;
    if (line) line(partial_);
    partial_.clear();
    piece.remove_prefix(end + 1);
  }
}

void output_tail::finish(const std::function<void(std::string_view)>& line) {
  if (!partial_.empty() && line) line(partial_);
  partial_.clear();
  if (kept_.size() > kept_bytes) kept_.erase(0, kept_.size() - kept_bytes);
}

std::string output_tail::last_lines(std::size_t count) const {
  std::size_t end = kept_.size();
  while (end > 0 && kept_[end - 1] == '\n') --end;
  std::size_t begin = end;
  while (begin > 0) {
    if (kept_[begin - 1] == '\n' && --count == 0) break;
    --begin;
  }
  return kept_.substr(begin, end - begin);
}

result<std::unique_ptr<child_process>> child_process::start(boost::asio::io_context& io,
                                                            spawn_request request, unique_fd output_pipe,
                                                            child_callbacks callbacks) {
  auto started = spawn(request);
  if (!started) return tl::unexpected(std::move(started.error()));
  auto made = std::unique_ptr<child_process>(
      new child_process(io, std::move(*started), std::move(output_pipe), std::move(callbacks)));
  made->wait_for_end();
  if (made->output_.is_open()) made->wait_for_output();
  return made;
}

child_process::child_process(boost::asio::io_context& io, child started, unique_fd output_pipe,
                             child_callbacks callbacks)
    : child_(std::move(started)),
      callbacks_(std::move(callbacks)),
      end_(io, ::fcntl(child_.pidfd.get(), F_DUPFD_CLOEXEC, 0)),
      output_(io) {
  if (output_pipe) {
    const int flags = ::fcntl(output_pipe.get(), F_GETFL);
    ::fcntl(output_pipe.get(), F_SETFL, flags | O_NONBLOCK);
    output_.assign(output_pipe.release());
  }
}

child_process::~child_process() {
  callbacks_ = {};
  if (running_) {
    signal_group(child_, SIGKILL);
    reap(child_, time_to_die);
  }
}

void child_process::wait_for_end() {
  end_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                  [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                    if (!alive.expired() && status != boost::asio::error::operation_aborted) ended();
                  });
}

void child_process::wait_for_output() {
  output_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                       if (alive.expired() || !running_ || status == boost::asio::error::operation_aborted)
                         return;
                       for (int i = 0; i < reads_a_turn; ++i) {
                         if (!read_output()) return;
                       }
                       wait_for_output();
                     });
}

/// False when there is nothing more to wait for; reads what is there.
bool child_process::read_output() {
  std::array<char, read_bytes> piece;
  const ssize_t bytes = ::read(output_.native_handle(), piece.data(), piece.size());
  if (bytes > 0) {
    tail_.append({piece.data(), static_cast<std::size_t>(bytes)}, callbacks_.output);
    return true;
  }
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
    wait_for_output();
    return false;
  }
  return false;
}

void child_process::ended() {
  const exit_report report = reap(child_, time_to_die).value_or(exit_report{child_.pid});
  running_ = false;
  if (output_.is_open()) {
    // Its last words. A grandchild may hold the pipe open; nobody waits for it.
    output_.cancel();
    std::array<char, read_bytes> piece;
    for (std::size_t total = 0; total < 4 * output_tail::kept_bytes;) {
      const ssize_t bytes = ::read(output_.native_handle(), piece.data(), piece.size());
      if (bytes <= 0) break;
      total += static_cast<std::size_t>(bytes);
      tail_.append({piece.data(), static_cast<std::size_t>(bytes)}, callbacks_.output);
    }
    output_.close();
  }
  tail_.finish(callbacks_.output);
  // The callback may destroy us.
  const auto exited = std::move(callbacks_.exited);
  if (exited) exited(report, tail_);
}

void child_process::signal(int number) noexcept {
  if (running_) signal_group(child_, number);
}

void child_process::signal_leader(int number) noexcept {
  if (running_) ::syscall(SYS_pidfd_send_signal, child_.pidfd.get(), number, nullptr, 0U);
}

}  // namespace penstock::process
