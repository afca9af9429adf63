#include "runtime/net/name_lookup.hpp"

#include <boost/asio/post.hpp>

namespace penstock::group {

void name_lookup::ask(std::function<void(addresses)> found) {
  if (auto late = std::exchange(late_, {}); late && !late->empty()) return found(std::move(late));
  found_ = std::move(found);
  if (asking_) return;
  asking_ = thread_.post([mail = mail_, address = address_, weak = weak_from_this()] {
    auto all = resolve(address);
    const std::lock_guard hold(mail->mutex);
    if (mail->io == nullptr) return;
    boost::asio::post(*mail->io, [weak, all = std::move(all)] {
      if (const auto self = weak.lock()) self->answered(all);
    });
  });
}

void name_lookup::answered(addresses found) {
  asking_ = false;
  if (found && found->empty()) found = refuse(errc::io, "'{}' has no address", address_.name);
  if (const auto take = std::exchange(found_, {})) return take(std::move(found));
  late_ = std::move(found);
}

void name_lookup::stop() {
  found_ = {};
  {
    const std::lock_guard hold(mail_->mutex);
    mail_->io = nullptr;
  }
  thread_.stop_within(std::chrono::milliseconds(0));
}

}  // namespace penstock::group
