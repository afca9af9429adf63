// One connection between a member and the coordinator: frames of bytes on a socket, encrypted if there is a
// secret. It authenticates the peer, exchanges the first messages, and enforces time limits, which do not count
// time during which this process did not run (rule G23). Used by both sides of a link; belongs to the
// io_context's thread.
//
//   securing (TLS; skipped without a secret) --> greeting (hello in both directions) --> open --> closed
//       each may end in closed: the peer is not a member, or too slow
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/group/group_wire.hpp"
#include "runtime/net/links.hpp"
#include "runtime/net/tls/tls_stream.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::group {

/// Settings shared by all connections of one side.
struct stream_facts_of_side {
  link_settings settings;
  std::shared_ptr<const tls_context> tls{};  ///< empty: not encrypted
  bool listens = false;                      ///< the coordinator's side
};

/// Checks the settings and opens OpenSSL if it is needed. Refuses (errc::config).
result<std::shared_ptr<const stream_facts_of_side>> facts_of_side(link_settings settings, bool listens);

class link_stream : public std::enable_shared_from_this<link_stream> {
 public:
  struct callbacks {
    std::function<void()> opened;
    /// Receives a frame. A refusal closes the connection.
    std::function<result<void>(const frame_cutter::frame&)> frame;
    /// Called once. `kind`: only if the stream was never open.
    std::function<void(std::optional<unknown_peer_kind> kind, const std::string& why)> closed;
    /// Nothing was heard for too long. Without this callback the connection is then closed.
    std::function<void(const std::string& why)> silent{};
    /// Nothing was heard since the last call, or for an eighth of the silence limit, and a debugger holds the
    /// process at the other end. That does not count as silence.
    std::function<void()> held{};
  };

  /// `process`: the one at the other end, on this host; 0: unknown.
  static std::shared_ptr<link_stream> make(boost::asio::io_context& io, unique_fd socket,
                                           std::int32_t process,
                                           std::shared_ptr<const stream_facts_of_side> side,
                                           callbacks calls) {
    return std::shared_ptr<link_stream>(
        new link_stream(io, std::move(socket), process, std::move(side), std::move(calls)));
  }

  /// Reads what has already arrived, so the peer may be known, or gone, when this returns.
  void start();
  /// Sends a frame, in place of an earlier one whose sending has not begun.
  void send(std::string frame);
  /// No callbacks follow. Informs the peer.
  void close() { shut_quietly(); }
  /// Like close(), but for an unknown peer. Keeps nothing and sends nothing.
  void drop();

  [[nodiscard]] bool proven() const noexcept { return stage_ == stage::open || (tls_ && tls_->proven()); }
  [[nodiscard]] bool open() const noexcept { return stage_ == stage::open; }
  [[nodiscard]] steady_time last_heard() const noexcept { return last_heard_; }

 private:
  enum class stage : std::uint8_t { securing, greeting, open, closed };

  link_stream(boost::asio::io_context& io, unique_fd socket, std::int32_t process,
              std::shared_ptr<const stream_facts_of_side> side, callbacks calls);
  void read_more();
  bool read_once();
  void take(std::string_view bytes);
  void take_plain(std::string_view plain);
  void greet();
  void take_hello(std::string_view payload);
  void fail(unknown_peer_kind kind, std::string why);
  void fail_tls(const tls_failure& failure);
  void flush();
  void write_when_possible();
  void watch(nanoseconds at_most);
  void look_later();
  void look();
  void end(std::optional<unknown_peer_kind> kind, const std::string& why);
  void shut_quietly();

  std::shared_ptr<const stream_facts_of_side> side_;
  callbacks calls_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer timer_;
  std::int32_t process_;
  stage stage_ = stage::securing;
  std::unique_ptr<tls_stream> tls_;
  frame_cutter cutter_{hello_bytes_max};
  // The first bytes received, which tell a member with other security settings from an unrelated peer.
  std::string first_;
  std::size_t handshake_bytes_ = 0;  // received before the link was open
  std::string leaving_;              // being written to the socket
  std::size_t left_ = 0;             // how many of these bytes have been written
  std::optional<std::string> next_;  // the frame to send after those bytes
  bool awaits_room_ = false;         // waits for room in the socket
  bool broken_ = false;              // writing has failed; reading finds out why
  steady_time last_heard_{};
  steady_time looked_at_{};                                   // value of last_heard_ at the last check
  bool silent_ = false;                                       // the peer has been silent for too long
  patient_deadline silence_{nanoseconds(0), nanoseconds(0)};  // limits silence, or the handshake
};

}  // namespace penstock::group
