// After a connection breaks, waits for a while for the peer's process to end. If the process has ended,
// nobody needs to wait until its silence counts as a loss. Checks once more at the end of the wait, because
// this process may not have run meanwhile. Used by both sides of a link, for peers on the same host.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <poll.h>

#include <functional>
#include <memory>
#include <utility>

namespace penstock::group {

class process_watch : public std::enable_shared_from_this<process_watch> {
 public:
  /// Keeps itself alive until it has called `over`, which says whether the process has ended. The kernel may
  /// need seconds to clean up after a process that uses a GPU, while it closes the connections at once.
  static void begin(boost::asio::io_context& io, unique_fd process, nanoseconds at_most,
                    std::function<void(bool ended)> over) {
    const std::shared_ptr<process_watch> watch(new process_watch(io, std::move(process), std::move(over)));
    watch->timer_.expires_after(at_most);
    watch->timer_.async_wait(
        [watch](const boost::system::error_code& status) { watch->done(status, watch->has_ended()); });
    watch->process_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read,
        [watch](const boost::system::error_code& status) { watch->done(status, true); });
  }

 private:
  process_watch(boost::asio::io_context& io, unique_fd process, std::function<void(bool)> over)
      : process_(io, process.release()), timer_(io), over_(std::move(over)) {}

  [[nodiscard]] bool has_ended() {
    ::pollfd ready{.fd = process_.native_handle(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) > 0;
  }
  void done(const boost::system::error_code& status, bool ended) {
    if (status || !over_) return;
    const auto over = std::exchange(over_, {});
    boost::system::error_code ignored;
    process_.close(ignored);
    timer_.cancel();
    over(ended);
  }

  boost::asio::posix::stream_descriptor process_;
  boost::asio::steady_timer timer_;
  std::function<void(bool)> over_;
};

}  // namespace penstock::group
