// One end of the socketpair between the session and a child; sends and receives typed messages. Lives on an
// io_context; any thread may call send(). There is no listening socket and no port, so no other process can
// connect.
#pragma once

#include "actors/protocol/wire.hpp"
#include "runtime/base/fd.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace penstock::protocol {

/// Two connected ends, both close-on-exec.
result<std::pair<unique_fd, unique_fd>> make_link_pair();

template <class In, class Out>
class link : public std::enable_shared_from_this<link<In, Out>> {
 public:
  struct callbacks {
    std::function<void(In&&)> received;
    /// Called once, when the peer closes the link (empty reason) or violates the protocol. Nothing is
    /// received afterwards.
    std::function<void(const std::string& reason)> closed;
    /// The link closes when the peer has sent this many messages more than it received (or than expect()
    /// allows). Peers only send answers, so this bounds the memory that a flood can take.
    std::uint64_t unasked_max = std::numeric_limits<std::uint64_t>::max() / 2;
    /// See send(). A rare message is best written at once, because waking the io thread costs more than a
    /// write. At 10^5 batches a second the io thread is awake anyway, and a write per message would cost a
    /// sixth to a third of the rate (docs/benchmarks.md).
    std::chrono::nanoseconds gathered_within = std::chrono::microseconds(50);
  };

  /// Takes the socket. Next, call start() on the io thread.
  static std::shared_ptr<link> make(boost::asio::io_context& io, unique_fd socket, callbacks calls) {
    return std::shared_ptr<link>(new link(io, std::move(socket), std::move(calls)));
  }

  void start() { read_more(); }

  /// Whether the link is open: false once this side has closed it.
  [[nodiscard]] bool is_open() {
    const std::lock_guard hold(mutex_);
    return !closed_;
  }

  /// Sends a message before returning, if the socket accepts it. A message sent within `gathered_within` of
  /// the previous one is queued instead (unless written_at_once), and the io thread sends the queue in one
  /// write. Silently dropped when the link is closed: the peer's death is reported elsewhere. The leases that
  /// a peer can hold bound the queue. The link closes if a peer does not read and the queue exceeds
  /// `unsent_max`, or if a message is larger than a frame: senders split such messages first (fit.hpp).
  void send(const Out& message) {
    std::string cut_off;
    {
      const std::lock_guard hold(mutex_);
      if (closed_) return;
      if (auto ok = append_frame(unsent_, message); !ok) {
        cut_off = std::move(ok.error().message);
      } else if (unsent_.size() > unsent_max) {
        cut_off = "it does not read its messages";
      }
      asked_.fetch_add(1, std::memory_order_relaxed);
      const bool at_once = leaves_at_once(message);
      if (cut_off.empty() && (flush_posted_ || writing_ || (at_once && write_now()))) return;
      flush_posted_ = true;
    }
    boost::asio::post(socket_.get_executor(),
                      [self = this->shared_from_this(), cut_off = std::move(cut_off)] {
                        if (!cut_off.empty()) {
                          self->shut(cut_off);
                        } else {
                          self->flush();
                        }
                      });
  }

  /// Allows the peer this many messages in addition to one per message sent to it.
  void expect(std::uint64_t more) noexcept { asked_.fetch_add(more, std::memory_order_relaxed); }

  /// Calls `then` on the io thread when the kernel has accepted everything sent so far, or never will.
  void when_sent(std::function<void()> then) {
    boost::asio::post(socket_.get_executor(),
                      [self = this->shared_from_this(), then = std::move(then)]() mutable {
                        self->after_write_ = std::move(then);
                        self->flush();
                      });
  }

  /// On the io thread: reads what has already arrived, without waiting. Call for the last messages of a dead
  /// peer: a grandchild may still hold its socket open, so the end of the file may never come.
  void drain() {
    while (open_ && read_once()) {
    }
  }

  /// On the io thread: closes the link. No callback runs afterwards.
  void close() {
    calls_ = {};
    shut("");
  }

 private:
  static constexpr std::size_t unsent_max = 64U << 20U;
  static constexpr int reads_a_turn = 8;

  link(boost::asio::io_context& io, unique_fd socket, callbacks calls)
      : gathered_within_(calls.gathered_within),
        last_send_(std::chrono::steady_clock::now() - calls.gathered_within),
        calls_(std::move(calls)),
        socket_(io, boost::asio::local::stream_protocol(), socket.release()) {
    socket_.non_blocking(true);
  }

  // Waits for readability, then reads. Asio itself never holds any bytes, so drain() may be called at any
  // time.
  void read_more() {
    if (!open_) return;
    socket_.async_wait(boost::asio::local::stream_protocol::socket::wait_read,
                       [self = this->shared_from_this()](const boost::system::error_code& status) {
                         if (!self->open_) return;
                         if (status) return self->shut("");
                         // A flood must not starve the io thread's other work.
                         for (int i = 0; i < reads_a_turn && self->open_ && self->read_once(); ++i) {
                         }
                         self->read_more();
                       });
  }

  /// Reads once. False if there is nothing to read now.
  bool read_once() {
    // On the stack: all links share the io thread, so none of them needs a buffer between reads.
    std::array<char, 64 * 1024> incoming;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by reads
    boost::system::error_code status;
    const std::size_t bytes = socket_.read_some(boost::asio::buffer(incoming), status);
    if (status == boost::asio::error::would_block || status == boost::asio::error::interrupted) return false;
    if (status) {
      shut("");
      return false;
    }
    take({incoming.data(), bytes});
    return bytes == incoming.size();  // a shorter read has emptied the socket
  }

  void take(std::span<const char> bytes) {
    bool too_many = false;
    const auto ok = reader_.feed(bytes, [&](In&& message) {
      too_many = ++heard_ > asked_.load(std::memory_order_relaxed) + calls_.unasked_max;
      if (!too_many && calls_.received) calls_.received(std::move(message));
    });
    if (!ok) return shut(ok.error().message);
    if (too_many) shut("it sends more messages than the session asked for");
  }

  /// Call with mutex_ held.
  [[nodiscard]] bool leaves_at_once(const Out& message) {
    if (std::visit([]<class M>(const M&) { return written_at_once<M>; }, message)) return true;
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(last_send_, now) >= gathered_within_;
  }

  /// Call with mutex_ held and no write in progress. Writes what fits into the socket, without waking the io
  /// thread. True: everything was written. Ignores a closed peer; reading detects and reports that.
  bool write_now() noexcept {
    const ssize_t sent =
        ::send(socket_.native_handle(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    return unsent_.empty();
  }

  void flush() {
    bool begins = false;
    {
      const std::lock_guard hold(mutex_);
      flush_posted_ = false;
      if (writing_) return;
      if (!closed_ && !unsent_.empty()) {
        std::swap(unsent_, in_write_);
        begins = writing_ = true;
      }
    }
    if (!begins) {
      if (const auto then = std::exchange(after_write_, {})) then();
      return;
    }
    boost::asio::async_write(socket_, boost::asio::buffer(in_write_),
                             [self = this->shared_from_this()](const boost::system::error_code& status,
                                                               std::size_t) { self->written(!status); });
  }

  void written(bool good) {
    in_write_.clear();
    {
      const std::lock_guard hold(mutex_);
      // A peer may send messages before it closes its end: reading still gets them, and then reports the
      // close.
      if (!good) unsent_.clear();
      writing_ = false;
    }
    flush();
  }

  void shut(const std::string& reason) {
    if (!open_) return;
    open_ = false;
    {
      const std::lock_guard hold(mutex_);
      closed_ = true;
      unsent_.clear();
    }
    boost::system::error_code ignored;
    socket_.close(ignored);
    if (const auto closed = std::exchange(calls_, {}).closed) closed(reason);
  }

  const std::chrono::nanoseconds gathered_within_;
  std::chrono::steady_clock::time_point last_send_;  // guarded by mutex_

  // Used only on the io thread.
  callbacks calls_;
  boost::asio::local::stream_protocol::socket socket_;
  frame_reader<In> reader_;
  std::uint64_t heard_ = 0;
  std::vector<char> in_write_;
  std::function<void()> after_write_;
  bool open_ = true;

  std::atomic<std::uint64_t> asked_{0};
  std::mutex mutex_;
  std::vector<char> unsent_;
  bool writing_ = false;  // the io thread is writing; it sends the queue afterwards
  bool flush_posted_ = false;
  bool closed_ = false;
};

/// The session's side of a worker's link.
using worker_link = link<from_worker, to_worker>;
/// The worker's side.
using session_link = link<to_worker, from_worker>;
/// The session's side of the owner process's link, and the owner's.
using owner_link = link<from_owner, to_owner>;
using owners_session_link = link<to_owner, from_owner>;

}  // namespace penstock::protocol
