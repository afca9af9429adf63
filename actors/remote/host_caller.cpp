#include "actors/remote/host_caller.hpp"

#include "actors/remote/host_connect.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/text.hpp"
#include "runtime/base/worker_places.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace penstock::hosts {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds call_deadline = 5s;
constexpr auto retry_after = 300ms;

}  // namespace

host_caller::host_caller(boost::asio::io_context& io, group::group_address address, std::function<void(unique_fd)> connected)
    : address_(std::move(address)),
      connected_(std::move(connected)),
      mail_(std::make_shared<mailbox>()),
      timer_(io) {
  mail_->io = &io;
}

void host_caller::start() {
  call_more();
}

void host_caller::offers(std::uint32_t workers) {
  wanted_ = std::clamp(workers, 1U, remote_workers_max);
  call_more();
}

void host_caller::gone(nanoseconds pause, const std::string& why) {
  live_ -= live_ > 0 ? 1 : 0;
  if (live_ == 0) wanted_ = 1;  // start with one connection: when the host comes back, it may offer fewer workers
  if (!why.empty()) say(why);
  if (!busy_) call_later(pause);
}

void host_caller::call_more() {
  if (over_ || busy_ || live_ >= wanted_) return;
  busy_ = thread_.post([mail = mail_, address = address_, weak = weak_from_this()] {
    auto socket = connect_to(address, call_deadline);
    const std::lock_guard hold(mail->mutex);
    if (mail->io == nullptr) return;
    boost::asio::post(*mail->io, [weak, held = std::make_shared<result<unique_fd>>(std::move(socket))] {
      const auto self = weak.lock();
      if (self && *held) self->called(std::move(**held), "");
      if (self && !*held) self->called(unique_fd(), held->error().message);
    });
  });
}

void host_caller::called(unique_fd socket, const std::string& why) {
  busy_ = false;
  if (over_) return;
  if (!socket) {
    say(why);
    return call_later(retry_after);
  }
  ++live_;
  connected_(std::move(socket));
  call_more();
}

void host_caller::call_later(nanoseconds pause) {
  if (over_) return;
  busy_ = true;
  timer_.expires_after(pause);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& status) {
    const auto self = weak.lock();
    if (status || !self) return;
    self->busy_ = false;
    self->call_more();
  });
}

void host_caller::say(const std::string& why) {
  if (over_ || !troubles_.is_news(why, std::chrono::steady_clock::now())) return;
  log::warn("hosts", "the loader host at {} cannot be used: {}; trying again", text_of(address_), printable(why));
}

void host_caller::stop() {
  over_ = true;
  {
    const std::lock_guard hold(mail_->mutex);
    mail_->io = nullptr;
  }
  timer_.cancel();
  thread_.stop_within(std::chrono::milliseconds(0));
}

}  // namespace penstock::hosts
