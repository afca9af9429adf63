#include "tools/penstock/launch/rank_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace penstock::cli {
namespace {

constexpr int reads_a_turn = 16;  // after this many reads, the other ranks' pipes take their turn
constexpr std::size_t read_bytes = 64 * 1024;
// The default capacity of a pipe; anything more comes from a process that outlives the rank.
constexpr int reads_at_the_end = 16;

}  // namespace

rank_output::rank_output(boost::asio::io_context& io, unique_fd pipe, int to, std::string prefix,
                         line_writer& writer)
    : pipe_(io), to_(to), prefix_(std::move(prefix)), writer_(writer) {
  ::fcntl(pipe.get(), F_SETFL, ::fcntl(pipe.get(), F_GETFL) | O_NONBLOCK);
  boost::system::error_code status;
  pipe_.assign(pipe.get(), status);
  if (status) return;  // no descriptor is free: the rank gets EPIPE
  static_cast<void>(pipe.release());
  wait();
}

void rank_output::wait() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                     if (alive.expired() || status) return;
                     for (int i = 0; i < reads_a_turn; ++i) {
                       if (!read()) return;
                     }
                     wait();
                   });
}

/// False: wait for more, or nothing more will come.
bool rank_output::read() {
  if (writer_.full()) {
    paused_ = true;
    return false;
  }
  std::array<char, read_bytes> piece;
  const ssize_t n = ::read(pipe_.native_handle(), piece.data(), piece.size());
  if (n > 0) {
    tail_.append({piece.data(), static_cast<std::size_t>(n)}, [this](std::string_view line) { show(line); });
    if (!lines_.empty()) writer_.write(to_, std::exchange(lines_, {}));
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) wait();
  return false;
}

void rank_output::show(std::string_view line) {
  lines_ += prefix_;
  lines_ += line;
  lines_ += '\n';
}

void rank_output::resume() {
  if (std::exchange(paused_, false) && pipe_.is_open()) wait();
}

void rank_output::finish() {
  if (!pipe_.is_open()) return;
  alive_ = std::make_shared<char>();
  std::array<char, read_bytes> piece;
  for (int i = 0; i < reads_at_the_end; ++i) {
    const ssize_t n = ::read(pipe_.native_handle(), piece.data(), piece.size());
    if (n <= 0) break;
    tail_.append({piece.data(), static_cast<std::size_t>(n)}, [this](std::string_view line) { show(line); });
  }
  tail_.finish([this](std::string_view line) { show(line); });
  if (!lines_.empty()) writer_.write(to_, std::exchange(lines_, {}));
  pipe_.close();
}

}  // namespace penstock::cli
