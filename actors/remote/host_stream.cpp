#include "actors/remote/host_stream.hpp"

#include "runtime/base/units.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace penstock::hosts {
namespace {

static_assert(POLLIN == 1);  // host_stream.hpp writes the number, so that it need not include <poll.h>

constexpr std::size_t read_bytes = 64 * 1024;
constexpr std::size_t short_read_bytes = 1024;  // for messages; keeps the stack of an otherwise idle thread small
constexpr nanoseconds busy_turn = std::chrono::milliseconds(200);
constexpr std::size_t piece_bytes = 256 * 1024;  // a piece of a batch; stays in the cache between its digest and its system call
// How much a peer may send while it does not read. The leases that fit its slots bound what it sends.
constexpr std::size_t unread_max = 16U << 20U;

// How TLS begins, and the alerts that tell a peer that it needs a secret, or that this side has none. OpenSSL sends
// neither alert to a peer without TLS.
constexpr std::string_view tls_record = "\x16\x03";
constexpr std::string_view tls_alert = "\x15\x03";
constexpr std::string_view secret_needed("\x15\x03\x03\x00\x02\x02\x28", 7);   // handshake_failure
constexpr std::string_view no_secret_here("\x15\x03\x03\x00\x02\x02\x73", 7);  // unknown_psk_identity

/// A message may begin with the same two bytes, but the version's second byte would then announce more than 64 KiB.
bool is_tls(std::string_view first) {
  return (first.starts_with(tls_record) || first.starts_with(tls_alert)) && first[2] != 0;
}

std::int64_t as_ns(steady_time time) {
  return nanoseconds(time.time_since_epoch()).count();
}

nanoseconds look_every(nanoseconds at_most) {
  return look_interval(at_most, busy_turn);
}

}  // namespace

host_stream::host_stream(unique_fd socket, const std::shared_ptr<const group::tls_context>& tls, clock time)
    : socket_(std::move(socket)),
      tls_(tls ? std::make_unique<group::tls_stream>(tls) : nullptr),
      time_(time),
      heard_ns_(as_ns(time())) {
  const int yes = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void host_stream::close_soon() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

patient_deadline host_stream::deadline_in(nanoseconds at_most) const {
  patient_deadline until(at_most, look_every(at_most));
  until.restart(time_());
  return until;
}

result<void> host_stream::look(short events, nanoseconds at_most) const {
  pollfd socket{socket_.get(), events, 0};
  const auto turn = std::chrono::ceil<std::chrono::milliseconds>(look_every(at_most)).count();
  const int ready = ::poll(&socket, 1, static_cast<int>(turn));
  if (ready < 0 && errno != EINTR) return refuse_os(errc::io, errno, "waiting for the connection");
  if (ready == 0) while_busy_();
  return {};
}

result<void> host_stream::secure(nanoseconds at_most) {
  if (!tls_) return {};
  patient_deadline until = deadline_in(at_most);
  while (true) {
    std::string out;
    tls_->take(out);
    if (auto ok = send_all(out, at_most); !ok) return ok;
    if (tls_->established()) return {};
    if (until.is_over(time_())) return refuse(errc::io, "it sent nothing in time");
    if (auto ok = look(POLLIN, at_most); !ok) return ok;
    if (auto ok = read(); !ok) return ok;
  }
}

void host_stream::take(std::size_t bytes) {
  taken_ += bytes;
  if (taken_ < arrived_.size() && taken_ < read_bytes) return;
  arrived_.erase(0, taken_);
  taken_ = 0;
}

bool host_stream::has_message() const {
  protocol::frame_header header;
  const std::string_view bytes = unread();
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.payload_bytes > message_bytes_max_ || bytes.size() - sizeof header >= header.payload_bytes;
}

/// Reads once, without waiting.
result<void> host_stream::receive() {
  if (!tls_) {
    std::array<char, short_read_bytes> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
    const auto got = receive_into(some);
    if (!got) return tl::unexpected(got.error());
    arrived_ += *got;
    return {};
  }
  return receive_encrypted();
}

/// Reads once from the socket, without waiting. Returns an empty view if nothing has arrived.
result<std::string_view> host_stream::receive_into(std::span<char> room) {
  const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::string_view();
  if (got < 0) return refuse_os(errc::io, errno, "reading from the connection");
  if (got == 0) return refuse(errc::io, "the connection was closed");
  heard_ns_ = as_ns(time_());
  const std::string_view bytes(room.data(), static_cast<std::size_t>(got));
  if (std::exchange(received_bytes_, received_bytes_ + bytes.size()) == 0) {
    if (auto ok = compare_secrets(bytes); !ok) return tl::unexpected(std::move(ok.error()));
  }
  return bytes;
}

/// If only one side has a secret, tells the peer in a way that it understands, and refuses it.
result<void> host_stream::compare_secrets(std::string_view first) {
  if (first.size() < 3) return {};
  const bool peer_has_one = is_tls(first) && !first.starts_with(no_secret_here);
  if (peer_has_one == (tls_ != nullptr)) return {};
  if (!first.starts_with(tls_alert)) static_cast<void>(send_all(tls_ ? secret_needed : no_secret_here, nanoseconds(0)));
  return refuse(errc::config,
                "it has {} secret, and this side has {}: both need the same one, or neither (--secret-file of the host, "
                "[loader.hosts] secret_file of the session)",
                peer_has_one ? "a" : "no", tls_ ? "one" : "none");
}

result<void> host_stream::receive_encrypted() {
  std::array<char, read_bytes> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  const auto got = receive_into(some);
  if (!got) return tl::unexpected(got.error());
  const auto ok = tls_->feed(*got, arrived_);
  if (ok) return {};
  std::string alert;
  tls_->take(alert);
  static_cast<void>(send_all(alert, nanoseconds(0)));
  const bool known = ok.error().kind != group::tls_trouble::garbage;
  return refuse(known ? errc::config : errc::io, "{}", ok.error().text);
}

result<void> host_stream::read() {
  if (arrived_.size() - taken_ > unread_max) return refuse(errc::protocol, "it sends more than was asked for");
  return receive();
}

/// Reads while the peer does not: it may be blocked in a send, too.
result<void> host_stream::send_all(std::string_view bytes, nanoseconds silence_max) {
  patient_deadline taken = deadline_in(silence_max);
  bool waited = false;
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      said_ = time_();
      taken.restart(said_);
      if (std::exchange(waited, false)) heard_ns_ = as_ns(said_);  // the peer reads again
      while_busy_();
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return refuse_os(errc::io, errno, "writing to the connection");
    if (taken.is_over(time_())) return refuse(errc::io, "it read nothing for {}", duration_for_people(silence_max));
    waited = true;
    const bool may_read = tls_ == nullptr || tls_->established();
    if (auto ok = look(static_cast<short>(may_read ? POLLOUT | POLLIN : POLLOUT), silence_max); !ok) return ok;
    if (!may_read) continue;
    if (auto ok = read(); !ok) return ok;
  }
  return {};
}

result<void> host_stream::flush(nanoseconds silence_max, std::span<const std::byte> raw, bool digest) {
  if (too_large_) return refuse(errc::protocol, "a message is larger than {} bytes", protocol::frame_bytes_max);
  const std::vector<char> messages = std::exchange(leaving_, {});
  const auto send = [&](std::string_view bytes) -> result<void> {
    if (bytes.empty()) return {};
    if (!tls_) return send_all(bytes, silence_max);
    tls_->write(bytes);
    std::string out;
    tls_->take(out);
    return send_all(out, silence_max);
  };
  if (auto ok = send({messages.data(), messages.size()}); !ok) return ok;
  std::string_view rest(reinterpret_cast<const char*>(raw.data()), raw.size());
  std::optional<xxh3> sent;
  if (digest) sent.emplace();
  while (!rest.empty()) {
    const std::string_view piece = rest.substr(0, piece_bytes);
    rest.remove_prefix(piece.size());
    if (sent) sent->add(piece);
    if (auto ok = send(piece); !ok) return ok;
    while_busy_();
  }
  if (!sent) return {};
  const std::uint64_t value = sent->value();
  return send({reinterpret_cast<const char*>(&value), sizeof value});
}

result<std::size_t> host_stream::receive_raw(std::span<std::byte> to) {
  if (const std::string_view here = unread(); !here.empty()) {
    const std::size_t some = std::min(here.size(), to.size());
    std::memcpy(to.data(), here.data(), some);
    take(some);
    return some;
  }
  if (tls_) {
    if (auto ok = receive(); !ok) return tl::unexpected(std::move(ok.error()));
    return 0;
  }
  const auto got = receive_into({reinterpret_cast<char*>(to.data()), std::min(to.size(), piece_bytes)});
  if (!got) return tl::unexpected(got.error());
  return got->size();
}

result<void> host_stream::read_raw(std::span<std::byte> to, nanoseconds silence_max, xxh3* digest) {
  patient_deadline silence = deadline_in(silence_max);
  while (!to.empty()) {
    const std::uint64_t before = received_bytes_;
    const auto got = receive_raw(to);
    if (!got) return tl::unexpected(got.error());
    if (digest != nullptr) digest->add({reinterpret_cast<const char*>(to.data()), *got});
    to = to.subspan(*got);
    if (*got > 0 || received_bytes_ != before) silence.restart(time_());  // bytes of an incomplete TLS record count, too
    while_busy_();
    if (say_something_ && time_() - said_ >= say_every_) {
      say_something_();
      if (auto ok = flush(silence_max); !ok) return ok;
    }
    if (*got > 0 || !unread().empty()) continue;
    if (silence.is_over(time_())) return refuse(errc::io, "it was silent for {}", duration_for_people(silence_max));
    if (auto ok = look(POLLIN, silence_max); !ok) return ok;
  }
  return {};
}

result<std::string> host_stream::read_checked(std::span<std::byte> to, nanoseconds silence_max, bool digest) {
  xxh3 received;
  if (auto ok = read_raw(to, silence_max, digest ? &received : nullptr); !ok) return tl::unexpected(std::move(ok.error()));
  return digest ? compare(received, silence_max) : result<std::string>(std::string());
}

result<std::string> host_stream::compare(const xxh3& received, nanoseconds silence_max) {
  std::uint64_t sent = 0;
  if (auto ok = read_raw(std::as_writable_bytes(std::span(&sent, 1)), silence_max); !ok) return tl::unexpected(std::move(ok.error()));
  if (received.value() == sent) return std::string();
  return fmt::format("their digest is {:016x}, but {:016x} was sent", received.value(), sent);
}

result<void> host_stream::skip_raw(std::uint64_t bytes, nanoseconds silence_max, bool digest) {
  if (digest) bytes += sizeof(std::uint64_t);
  std::vector<std::byte> nowhere(std::min<std::uint64_t>(bytes, read_bytes));
  while (bytes > 0) {
    const std::size_t some = std::min<std::uint64_t>(bytes, nowhere.size());
    if (auto ok = read_raw(std::span(nowhere).first(some), silence_max); !ok) return ok;
    bytes -= some;
  }
  return {};
}

}  // namespace penstock::hosts
