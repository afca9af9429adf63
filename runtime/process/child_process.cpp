#include "runtime/process/child_process.hpp"

#include "runtime/base/log.hpp"
#include "runtime/process/crash_notes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace penstock::process {
namespace {

static_assert(output_tail::lines_shown * output_tail::line_max + stack_bytes_max <= output_tail::kept_bytes);

// One turn reads at most reads_a_turn x read_bytes = 64 KiB, the capacity of a
// pipe, so that a flood of output does not keep the io_thread from its other work.
constexpr std::size_t read_bytes = 16 * 1024;
constexpr int reads_a_turn = 4;

/// Asks the kernel, because a wait of Asio may complete although nothing has happened. If a descriptor is
/// released while Asio has queued an event for it, the event goes to the next descriptor with the same
/// internal state. This happens regularly: a pidfd has such an event whenever its process is reaped, and the
/// next child's pidfd reuses the state.
bool is_readable(int descriptor) noexcept {
  pollfd look{descriptor, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

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

result<std::unique_ptr<child_process>> child_process::watch(boost::asio::io_context& io, child started,
                                                            unique_fd output_pipe, child_callbacks callbacks,
                                                            std::chrono::milliseconds dies_within) {
  auto made = std::unique_ptr<child_process>(new child_process(io, std::move(started), std::move(callbacks), dies_within));
  boost::system::error_code status;
  made->end_.assign(made->child_.pidfd.get(), status);
  if (!status && output_pipe) {
    const int flags = ::fcntl(output_pipe.get(), F_GETFL);
    ::fcntl(output_pipe.get(), F_SETFL, flags | O_NONBLOCK);
    made->output_.assign(output_pipe.get(), status);
    if (!status) static_cast<void>(output_pipe.release());
  }
  if (status)
    return refuse_os(errc::system, status.value(), fmt::format("watching process {}", made->child_.pid));
  made->wait_for_end();
  if (made->output_.is_open()) made->wait_for_output();
  return made;
}

child_process::child_process(boost::asio::io_context& io, child started, child_callbacks callbacks,
                             std::chrono::milliseconds dies_within)
    : child_(std::move(started)),
      callbacks_(std::move(callbacks)),
      end_(io),
      output_(io),
      member_(io),
      patience_(io),
      dying_(dies_within, look_every) {}

child_process::~child_process() {
  callbacks_ = {};
  if (running_) {
    signal_group(child_, SIGKILL);
    reap(child_, time_to_die);
  }
  if (end_.is_open()) end_.release();
  if (member_.is_open()) member_.release();
}

void child_process::wait_for_end() {
  end_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                  [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                    if (alive.expired() || status == boost::asio::error::operation_aborted) return;
                    // Check that the child has ended, because reap_ended() would kill a living child.
                    is_readable(child_.pidfd.get()) ? let_it_leave() : wait_for_end();
                  });
}

void child_process::let_it_leave() {
  const auto time = time_to_leave(child_);
  if (time.count() == 0) return ended();
  patience_.expires_after(time);
  patience_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
    if (alive.expired() || status == boost::asio::error::operation_aborted) return;
    ended();
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

/// Reads available output. Returns false at the end of the output.
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
  ended_child end = reap_ended(child_);
  running_ = false;
  report_ = end.report;
  left_over_ = std::move(end.left_over);
  if (left_over_.empty()) return finish();
  dying_.restart(std::chrono::steady_clock::now());
  look_at_time_to_die();
  wait_for_rest_of_group();
}

void child_process::look_at_time_to_die() {
  patience_.expires_after(look_every);
  patience_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
    if (alive.expired() || status == boost::asio::error::operation_aborted || left_over_.empty()) return;
    if (!dying_.is_over(std::chrono::steady_clock::now())) return look_at_time_to_die();
    log::warn("process", "{} processes started by process {} had not ended {} ms after SIGKILL",
              left_over_.size(), child_.pid, std::chrono::duration_cast<std::chrono::milliseconds>(dying_.limit()).count());
    finish();
  });
}

void child_process::wait_for_rest_of_group() {
  boost::system::error_code status;
  if (!member_.is_open()) member_.assign(left_over_.back().get(), status);
  if (status) return finish();  // it was killed; whether it has ended stays unknown
  member_.async_wait(
      boost::asio::posix::stream_descriptor::wait_read,
      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& failed) {
        if (alive.expired() || failed == boost::asio::error::operation_aborted || left_over_.empty()) return;
        if (!is_readable(left_over_.back().get())) return wait_for_rest_of_group();
        stop_waiting_for_member();
        left_over_.pop_back();
        if (left_over_.empty()) return finish();
        wait_for_rest_of_group();
      });
}

void child_process::stop_waiting_for_member() {
  if (member_.is_open()) member_.release();
}

void child_process::finish() {
  stop_waiting_for_member();
  left_over_.clear();
  patience_.cancel();
  if (output_.is_open()) {
    // Read the last output, but do not wait for end-of-file: a grandchild may hold the pipe open.
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
  // The callback may destroy this object.
  const auto exited = std::move(callbacks_.exited);
  if (exited) exited(report_, tail_);
}

void child_process::signal(int number) noexcept {
  if (running_) signal_group(child_, number);
}

}  // namespace penstock::process
