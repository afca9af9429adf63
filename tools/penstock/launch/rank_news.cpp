#include "tools/penstock/launch/rank_news.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

namespace penstock::cli {
namespace {

constexpr std::size_t news_read_bytes = 64 * 1024;
// More than a socket holds by default.
constexpr int news_reads_at_the_end = 64;

}  // namespace

rank_news::rank_news(boost::asio::io_context& io, unique_fd channel,
                     std::function<void(const rank_progress&)> heard)
    : channel_(io), heard_(std::move(heard)) {
  ::fcntl(channel.get(), F_SETFL, ::fcntl(channel.get(), F_GETFL) | O_NONBLOCK);
  boost::system::error_code status;
  channel_.assign(channel.get(), status);
  if (status) return;
  static_cast<void>(channel.release());
  wait();
}

void rank_news::wait() {
  channel_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& status) {
                        if (alive.expired() || status || !channel_.is_open()) return;
                        if (read()) wait();
                      });
}

/// False: nothing more will come.
bool rank_news::read() {
  std::array<char, news_read_bytes> piece;
  const ssize_t n = ::read(channel_.native_handle(), piece.data(), piece.size());
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  text_.append(piece.data(), static_cast<std::size_t>(n));
  take_lines();
  return channel_.is_open();
}

void rank_news::take_lines() {
  std::size_t begin = 0;
  bool good = true;
  for (std::size_t end = 0; good && (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto progress = parse_progress(std::string_view(text_).substr(begin, end - begin));
    good = progress.has_value();
    if (good) heard_(*progress);
  }
  text_.erase(0, begin);
  if (good && text_.size() <= progress_line_max) return;
  text_.clear();
  channel_.close();
}

void rank_news::send(const std::string& line) {
  if (channel_.is_open()) static_cast<void>(::send(channel_.native_handle(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void rank_news::finish() {
  alive_ = std::make_shared<char>();
  for (int i = 0; i < news_reads_at_the_end && channel_.is_open(); ++i) {
    std::array<char, news_read_bytes> piece;
    const ssize_t n = ::read(channel_.native_handle(), piece.data(), piece.size());
    if (n <= 0) break;
    text_.append(piece.data(), static_cast<std::size_t>(n));
    take_lines();
  }
  if (channel_.is_open()) channel_.close();
}

}  // namespace penstock::cli
