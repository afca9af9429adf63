#include "runtime/net/listening_port.hpp"

#include "runtime/base/log.hpp"
#include "runtime/net/sockets.hpp"

#include <boost/asio/post.hpp>

#include <cerrno>
#include <utility>

namespace penstock::group {
namespace {

using namespace std::chrono_literals;
using boost::system::error_code;

constexpr int accepts_a_turn = 16;
constexpr auto listen_again = 100ms;
// An earlier process of this rank may still hold the address. To find out who holds it, this
// process must connect to it, so it does that only after some refusals.
constexpr std::uint32_t refusals_before_asking = 20;
constexpr auto accept_again = 100ms;  // how long to wait when this process has no descriptors left

}  // namespace

void listening_port::listen() {
  if (stopped_) return;
  if (!share_) share();
  auto socket = listen_at(address_, first_bytes_within_, refusals_ % refusals_before_asking == 0);
  if (!socket) {
    ++refusals_;
    try_again(listen_again, &listening_port::listen);
    if (!share_ || !share_->is_held_by_another()) return cannot(socket.error().message);
    if (!std::exchange(shares_, true)) calls_.listening(text_of(address_));
    return;
  }
  if (share_) share_->hold();
  const group_address where = listening_at(socket->get(), address_);
  if (where.name != address_.name)
    log::warn("group", "another user has taken the name {}; the group meets at {} instead", text_of(address_),
              text_of(where));
  socket_.assign(socket->release());
  why_not_.clear();
  accept_more();
  calls_.listening(text_of(where));
}

/// Receives the connections that another listener of this process accepts for this group.
void listening_port::share() {
  if (address_.what != group_address::kind::tcp || address_.port == 0) return;
  share_ = std::make_unique<shared_port>(
      text_of(address_), group_, [weak = weak_from_this(), &io = io_](unique_fd socket) {
        boost::asio::post(io, [weak, held = std::make_shared<unique_fd>(std::move(socket))] {
          const auto self = weak.lock();
          if (self && !self->stopped_) self->calls_.accepted(std::move(*held));
        });
      });
}

void listening_port::accept_more() {
  if (stopped_) return;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const error_code& status) {
                       if (status || self->stopped_) return;
                       for (int i = 0; i < accepts_a_turn; ++i) {
                         if (!self->accept_one()) return;
                         if (self->stopped_) return;
                       }
                       self->accept_more();
                     });
}

/// Returns false if there is nothing to accept now. Accepting resumes when there is.
bool listening_port::accept_one() {
  unique_fd socket(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      cannot(os_failure(errc::system, errno, "accepting a connection of the group").message);
      try_again(accept_again, &listening_port::accept_more);
      return false;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) return true;  // this connection has already ended
    accept_more();
    return false;
  }
  if (share_) socket = share_->route(std::move(socket));
  if (socket) calls_.accepted(std::move(socket));
  return true;
}

void listening_port::cannot(const std::string& why) {
  if (why == why_not_) return;
  why_not_ = why;
  calls_.not_listening(why);
}

void listening_port::try_again(std::chrono::milliseconds later, void (listening_port::*what)()) {
  again_.expires_after(later);
  again_.async_wait([self = shared_from_this(), what](const error_code& status) {
    if (!status) ((*self).*what)();
  });
}

void listening_port::stop() {
  if (std::exchange(stopped_, true)) return;
  error_code ignored;
  share_.reset();
  socket_.close(ignored);
  again_.cancel();
}

}  // namespace penstock::group
