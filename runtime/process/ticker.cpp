#include "runtime/process/ticker.hpp"

#include <utility>

namespace penstock::process {

ticker::ticker(io_thread& io, nanoseconds every, std::function<void()> what)
    : timer_(io.context()), every_(every), what_(std::move(what)) {
  arm();
}

void ticker::arm() {
  timer_.expires_after(every_);
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& cancelled) {
    if (cancelled || alive.expired()) return;
    what_();
    arm();
  });
}

}  // namespace penstock::process
