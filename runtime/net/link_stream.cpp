#include "runtime/net/link_stream.hpp"

#include "runtime/base/text.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/process/process_facts.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace penstock::group {
namespace {

constexpr std::size_t read_bytes = 16 * 1024;
constexpr int reads_a_turn = 4;
constexpr int looks_a_deadline = 8;
constexpr std::size_t first_bytes_kept = 16;
constexpr std::string_view tls_record = "\x16\x03";  // the first bytes that a TLS client sends
constexpr std::string_view tls_alert = "\x15\x03";   // the first bytes of a TLS alert, which refuses a client
constexpr std::string_view tls_handshake_failure("\x15\x03\x03\x00\x02\x02\x28", 7);

steady_time now() {
  return std::chrono::steady_clock::now();
}

bool is_traced(std::int32_t process) {
  const auto facts = process::look_at(process);
  return facts && facts->traced;
}

}  // namespace

result<std::shared_ptr<const stream_facts_of_side>> facts_of_side(link_settings settings, bool listens) {
  if (settings.group.size() > group_name_max) {
    return refuse(errc::config, "the name of the group has {} bytes, but at most {} are allowed",
                  settings.group.size(), group_name_max);
  }
  if (auto ok = check_secret(settings.address, settings.secret.has_value(), settings.insecure); !ok)
    return tl::unexpected(std::move(ok.error()));
  auto side = std::make_shared<stream_facts_of_side>();
  side->listens = listens;
  if (settings.secret && settings.address.what == group_address::kind::tcp) {
    auto tls = tls_context::make(listens ? tls_role::server : tls_role::client, "penstock/" + settings.group,
                                 settings.secret->bytes);
    if (!tls) return tl::unexpected(std::move(tls.error()));
    side->tls = std::move(*tls);
  }
  side->settings = std::move(settings);
  return std::shared_ptr<const stream_facts_of_side>(std::move(side));
}

result<void> prepare_links(const link_settings& settings) {
  const auto side = facts_of_side(settings, false);
  if (!side) return tl::unexpected(side.error());
  return {};
}

link_stream::link_stream(boost::asio::io_context& io, unique_fd socket, std::int32_t process,
                         std::shared_ptr<const stream_facts_of_side> side, callbacks calls)
    : side_(std::move(side)),
      calls_(std::move(calls)),
      socket_(io, socket.release()),
      timer_(io),
      process_(process),
      last_heard_(now()) {}

void link_stream::start() {
  const auto self = shared_from_this();  // a callback may release the last other reference
  watch(side_->settings.handshake_deadline);
  if (side_->tls) {
    tls_ = std::make_unique<tls_stream>(side_->tls);
  } else {
    greet();
  }
  flush();
  if (side_->listens) read_once();
  read_more();
}

void link_stream::send(std::string frame) {
  if (stage_ == stage::closed) return;
  next_ = std::move(frame);
  flush();
}

void link_stream::drop() {
  if (stage_ != stage::closed) drop_what_is_left(socket_.native_handle());
  shut_quietly();
}

// ---- reading -------------------------------------------------------------------------------------------------

void link_stream::read_more() {
  if (stage_ == stage::closed) return;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& status) {
                       if (status || self->stage_ == stage::closed) return;
                       // Read a limited amount: a flood of data must not keep the thread from its other work.
                       for (int i = 0; i < reads_a_turn && self->read_once(); ++i) {
                       }
                       self->read_more();
                     });
}

/// Returns false if there is nothing to read now.
bool link_stream::read_once() {
  if (stage_ == stage::closed) return false;
  std::array<char, read_bytes> some;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
  const ssize_t got = ::recv(socket_.native_handle(), some.data(), some.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (got < 0) {
    fail(unknown_peer_kind::garbage, os_failure(errc::io, errno, "reading").message);
    return false;
  }
  if (got == 0) {
    fail(unknown_peer_kind::garbage, stage_ == stage::open
                                         ? "it closed the connection"
                                         : "it closed the connection before it identified itself");
    return false;
  }
  last_heard_ = now();
  take({some.data(), static_cast<std::size_t>(got)});
  return stage_ != stage::closed && static_cast<std::size_t>(got) == some.size();
}

void link_stream::take(std::string_view bytes) {
  if (first_.size() < first_bytes_kept) first_.append(bytes.substr(0, first_bytes_kept - first_.size()));
  if (stage_ != stage::open) {
    handshake_bytes_ += bytes.size();
    if (handshake_bytes_ > coordinator_listener::handshake_bytes_max)
      return fail(unknown_peer_kind::garbage,
                  fmt::format("it sent {} bytes but did not identify itself", handshake_bytes_));
  }
  if (!tls_) return take_plain(bytes);
  std::string plain;
  const auto ok = tls_->feed(bytes, plain);
  if (stage_ == stage::securing && tls_->established()) greet();
  flush();
  if (!plain.empty()) take_plain(plain);
  if (!ok && stage_ != stage::closed) fail_tls(ok.error());
}

void link_stream::take_plain(std::string_view plain) {
  cutter_.feed(plain);
  while (stage_ != stage::closed) {
    auto next = cutter_.next();
    if (!next) return fail(unknown_peer_kind::garbage, next.error().message);
    if (!*next) return;
    const frame_cutter::frame& frame = **next;
    if (stage_ == stage::open) {
      if (frame.type == frame_type::hello)
        return fail(unknown_peer_kind::garbage, "it identified itself twice");
      if (auto ok = calls_.frame(frame); !ok) return fail(unknown_peer_kind::garbage, ok.error().message);
    } else if (frame.type == frame_type::hello) {
      take_hello(frame.payload);
    } else {
      return fail(unknown_peer_kind::garbage, "it does not identify itself");
    }
  }
}

// ---- who the peer is -----------------------------------------------------------------------------------------

/// The member sends its greeting first, and the coordinator answers.
void link_stream::greet() {
  stage_ = stage::greeting;
  if (!side_->listens) next_ = encode(link_hello{side_->settings.protocol, side_->settings.group});
}

void link_stream::take_hello(std::string_view payload) {
  const auto hello = decode_hello(payload);
  if (!hello) return fail(unknown_peer_kind::garbage, hello.error().message);
  const link_settings& own = side_->settings;
  // Answer even a peer of another group or version, so that the peer can report why it was refused.
  if (side_->listens) send(encode(link_hello{own.protocol, own.group}));
  if (hello->group != own.group) {
    return fail(unknown_peer_kind::wrong_group,
                fmt::format("it belongs to the group '{}', but this is the group '{}'",
                            printable(hello->group), own.group));
  }
  if (hello->protocol != own.protocol) {
    return fail(unknown_peer_kind::wrong_version,
                fmt::format("it speaks version {} of the protocol, but this process speaks version {}: all "
                            "ranks need the same version of penstock",
                            hello->protocol, own.protocol));
  }
  if (stage_ == stage::closed) return;
  stage_ = stage::open;
  cutter_.limit(std::max(frame_bytes_max(own.world_size), own.attachment_bytes_max));
  watch(side_->listens ? own.dead_after() : own.silence_max());
  calls_.opened();
}

void link_stream::fail(unknown_peer_kind kind, std::string why) {
  if (stage_ == stage::open) return end(std::nullopt, why);
  if (kind == unknown_peer_kind::garbage && !tls_ &&
      (first_.starts_with(tls_record) || first_.starts_with(tls_alert))) {
    // Send a greeting: the peer understands it, and can report the same reason.
    if (side_->listens) send(encode(link_hello{side_->settings.protocol, side_->settings.group}));
    return end(unknown_peer_kind::no_secret, "it has a secret, but this process has none");
  }
  end(kind, why);
}

void link_stream::fail_tls(const tls_failure& failure) {
  if (stage_ != stage::open && first_.find(hello_magic) != std::string::npos) {
    leaving_.append(tls_handshake_failure);  // OpenSSL does not send this to a peer without TLS
    return end(unknown_peer_kind::no_secret, "it has no secret, but this process has one");
  }
  switch (failure.kind) {
    case tls_trouble::wrong_secret: return fail(unknown_peer_kind::wrong_secret, failure.text);
    case tls_trouble::wrong_identity: return fail(unknown_peer_kind::wrong_group, failure.text);
    case tls_trouble::garbage: return fail(unknown_peer_kind::garbage, failure.text);
  }
}

// ---- writing -------------------------------------------------------------------------------------------------

void link_stream::flush() {
  if (awaits_room_ || broken_ || stage_ == stage::closed) return;
  while (true) {
    if (leaving_.empty()) {
      if (next_ && (!tls_ || tls_->established())) {
        const std::string frame = *std::exchange(next_, std::nullopt);
        if (tls_) {
          tls_->write(frame);
        } else {
          leaving_ = frame;
        }
      }
      if (tls_) tls_->take(leaving_);
      if (leaving_.empty()) return;
    }
    const ssize_t sent = ::send(socket_.native_handle(), leaving_.data() + left_, leaving_.size() - left_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return write_when_possible();
      broken_ = true;
      return;
    }
    left_ += static_cast<std::size_t>(sent);
    if (left_ == leaving_.size()) {
      leaving_.clear();
      left_ = 0;
    }
  }
}

void link_stream::write_when_possible() {
  awaits_room_ = true;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& status) {
                       self->awaits_room_ = false;
                       if (!status) self->flush();
                     });
}

// ---- the end -------------------------------------------------------------------------------------------------

/// Limits the time of the whole handshake, and later each silence.
void link_stream::watch(nanoseconds at_most) {
  silence_ = patient_deadline(at_most, at_most / looks_a_deadline);
  silence_.restart(now());
  look_later();
}

void link_stream::look_later() {
  timer_.expires_after(silence_.limit() / looks_a_deadline);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& status) {
    if (!status && self->stage_ != stage::closed) self->look();
  });
}

void link_stream::look() {
  read_once();  // bytes that arrived while this process was suspended count as on time
  if (stage_ == stage::closed) return;
  if (stage_ != stage::open) {
    if (!silence_.is_over(now())) return look_later();
    return end(unknown_peer_kind::too_slow, "it did not identify itself within the deadline");
  }
  if (std::exchange(looked_at_, last_heard_) != last_heard_) {
    silent_ = false;
    silence_.restart(last_heard_);
  } else if (calls_.held && process_ != 0 && is_traced(process_)) {
    silence_.restart(now());
    calls_.held();
  }
  if (stage_ == stage::closed) return;
  if (silence_.is_over(now()) && !std::exchange(silent_, true)) {
    const std::string why =
        fmt::format("it was silent for {} ms",
                    std::chrono::duration_cast<std::chrono::milliseconds>(silence_.limit()).count());
    if (!calls_.silent) return end(std::nullopt, why);
    calls_.silent(why);
  }
  if (stage_ != stage::closed) look_later();
}

void link_stream::end(std::optional<unknown_peer_kind> kind, const std::string& why) {
  if (stage_ == stage::closed) return;
  const auto self = shared_from_this();
  flush();  // send the peer the last bytes of TLS or of the greeting
  if (kind == unknown_peer_kind::too_slow) drop_what_is_left(socket_.native_handle());
  shut_quietly();
  calls_.closed(kind, why);
}

void link_stream::shut_quietly() {
  if (stage_ == stage::closed) return;
  stage_ = stage::closed;
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  tls_.reset();
  leaving_.clear();
  next_.reset();
}

}  // namespace penstock::group
