// Something that is done again and again on the io thread, such as looking whether the stream moves.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>

namespace penstock::process {

/// Calls `what` on the io thread, first after `every`, then `every` after the last call returned: calls never
/// pile up. Made on any thread; destroyed on the io thread, or when that one runs no more. `what` must not
/// block, throw, or destroy the ticker.
class ticker {
 public:
  ticker(io_thread& io, nanoseconds every, std::function<void()> what);

 private:
  void arm();

  boost::asio::steady_timer timer_;
  nanoseconds every_;
  std::function<void()> what_;
  // A wait that was over when we were destroyed finds it gone.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace penstock::process
