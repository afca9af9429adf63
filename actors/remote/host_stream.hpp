// One end of the connection between a session and a connection of a loader host: messages and the raw bytes of batches on a TCP
// socket, encrypted if there is a secret. Used by one thread at a time, which waits; close_soon() wakes it from any other.
//
// Waits do not count time during which this thread did not run (rule H17). A peer whose bytes arrive slowly is not silent.
#pragma once

#include "actors/protocol/wire.hpp"
#include "actors/remote/host_messages.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/xxh3.hpp"
#include "runtime/net/tls/tls_stream.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::hosts {

/// How many signs of life each side sends within [loader.hosts] lost_after.
inline constexpr auto signs_a_silence = 8;

[[nodiscard]] inline steady_time now() {
  return std::chrono::steady_clock::now();
}

class host_stream {
 public:
  using clock = steady_time (*)();
  /// `tls` null: not encrypted.
  host_stream(unique_fd socket, const std::shared_ptr<const group::tls_context>& tls, clock time = &now);

  /// Both sides prove that they know the secret, if there is one. Refuses (errc::io; errc::config for a wrong secret).
  result<void> secure(nanoseconds at_most);

  /// Called at least every 200 ms while a call waits or transfers bytes, on the thread of that call.
  void while_busy(std::function<void()> call) { while_busy_ = std::move(call); }
  /// While read_raw() receives, calls put_something() whenever nothing has been sent for `every`, and sends what it puts. Otherwise the
  /// peer would receive nothing until all of its bytes have arrived.
  void while_receiving(nanoseconds every, std::function<void()> put_something) {
    say_every_ = every;
    say_something_ = std::move(put_something);
  }

  /// Limits the peer's messages; they must be short until the peer has been identified.
  void limit(std::size_t message_bytes_max) { message_bytes_max_ = message_bytes_max; }

  /// Queues a message; flush() sends it. A message that does not fit a frame closes the connection at the next flush().
  template <class Variant>
  void put(const Variant& message) {
    if (!protocol::append_frame(leaving_, message)) too_large_ = true;
  }
  /// Sends what is queued, then `raw`, and with `digest` the digest of `raw`, which is computed piece by piece while the bytes
  /// are in the processor's cache. Refuses (errc::io) when the peer takes nothing for `silence_max`.
  result<void> flush(nanoseconds silence_max, std::span<const std::byte> raw = {}, bool digest = false);

  /// The next complete message that has arrived. Refuses (errc::protocol) anything else.
  template <class Variant>
  result<std::optional<Variant>> next();
  /// Whether next() has one. Polling the socket is not enough: a message that arrived together with others
  /// has already been read from it.
  [[nodiscard]] bool has_message() const;
  /// Reads what has arrived, without waiting. Refuses (errc::io) when the connection has ended.
  result<void> read();
  /// Waits for the next message.
  template <class Variant>
  result<Variant> wait_for(nanoseconds at_most);
  /// Reads the raw bytes after a message, and adds them to `digest`. Refuses (errc::io) when nothing arrives for `silence_max`.
  result<void> read_raw(std::span<std::byte> to, nanoseconds silence_max, xxh3* digest = nullptr);
  /// Like read_raw(); with `digest` also reads the digest that the peer has sent. Returns how the bytes are damaged; empty:
  /// intact.
  result<std::string> read_checked(std::span<std::byte> to, nanoseconds silence_max, bool digest);
  /// Reads the digest that follows the bytes. Returns how the received bytes differ from those sent; empty:
  /// they do not.
  result<std::string> compare(const xxh3& received, nanoseconds silence_max);
  /// Drops what read_checked() would read.
  result<void> skip_raw(std::uint64_t bytes, nanoseconds silence_max, bool digest = false);

  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  [[nodiscard]] bool encrypted() const noexcept { return tls_ != nullptr; }
  /// When bytes last arrived, or when the peer last read again after it had blocked our writes. From any
  /// thread.
  [[nodiscard]] steady_time last_heard() const noexcept { return steady_time(nanoseconds(heard_ns_.load())); }
  /// Ends the connection: a call that is waiting returns a refusal. From any thread.
  void close_soon() noexcept;

 private:
  [[nodiscard]] patient_deadline deadline_in(nanoseconds at_most) const;
  /// Polls the socket once, as a part of a wait of `at_most`.
  [[nodiscard]] result<void> look(short events, nanoseconds at_most) const;
  result<void> receive();
  result<void> receive_encrypted();
  result<std::string_view> receive_into(std::span<char> room);
  result<void> compare_secrets(std::string_view first);
  /// Reads what has arrived into `to`, without waiting, and returns the number of bytes; 0: none yet.
  result<std::size_t> receive_raw(std::span<std::byte> to);
  result<void> send_all(std::string_view bytes, nanoseconds silence_max);
  [[nodiscard]] std::string_view unread() const { return std::string_view(arrived_).substr(taken_); }
  void take(std::size_t bytes);

  unique_fd socket_;
  std::unique_ptr<group::tls_stream> tls_;
  std::function<void()> while_busy_ = [] {};
  std::vector<char> leaving_;
  std::string arrived_;
  std::size_t taken_ = 0;  // how much of arrived_ has been taken
  std::size_t message_bytes_max_ = protocol::frame_bytes_max;
  bool too_large_ = false;
  const clock time_;
  nanoseconds say_every_{0};
  std::function<void()> say_something_;
  steady_time said_{};              // when something was last sent
  std::uint64_t received_bytes_ = 0;  // total read from the socket
  std::atomic<std::int64_t> heard_ns_{0};
};

// ---- implementation ---------------------------------------------------------------------------------------

template <class Variant>
result<std::optional<Variant>> host_stream::next() {
  protocol::frame_header header;
  const std::string_view bytes = unread();
  if (bytes.size() < sizeof header) return std::optional<Variant>();
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.payload_bytes > message_bytes_max_) {
    return refuse(errc::protocol, "a message announces {} bytes, but at most {} are allowed", header.payload_bytes,
                  message_bytes_max_);
  }
  if (bytes.size() - sizeof header < header.payload_bytes) return std::optional<Variant>();
  auto message = protocol::detail::decode<Variant>(header.type, {bytes.data() + sizeof header, header.payload_bytes});
  if (!message) return tl::unexpected(std::move(message.error()));
  take(sizeof header + header.payload_bytes);
  return std::optional(std::move(*message));
}

template <class Variant>
result<Variant> host_stream::wait_for(nanoseconds at_most) {
  patient_deadline until = deadline_in(at_most);
  while (true) {
    auto message = next<Variant>();
    if (!message) return tl::unexpected(std::move(message.error()));
    if (*message) return std::move(**message);
    if (until.is_over(time_())) return refuse(errc::io, "it sent nothing in time");
    if (auto ok = look(1 /* POLLIN */, at_most); !ok) return tl::unexpected(std::move(ok.error()));
    if (auto ok = read(); !ok) return tl::unexpected(std::move(ok.error()));
  }
}

}  // namespace penstock::hosts
