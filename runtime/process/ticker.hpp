// A periodic task on the io thread, such as checking whether the stream makes progress.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>

namespace penstock::process {

/// Calls `what` on the io thread, first after `every`, then `every` after the last call returned, so that calls
/// never pile up. Construct on any thread; destroy on the io thread, or when it no longer runs. `what` must not
/// block, throw, or destroy the ticker.
class ticker {
 public:
  ticker(io_thread& io, nanoseconds every, std::function<void()> what);
  /// Calls `what` once more, before the ticker is destroyed. On the io thread.
  void call() const { what_(); }

 private:
  void arm();

  boost::asio::steady_timer timer_;
  nanoseconds every_;
  std::function<void()> what_;
  // Lets a wait that completed just before the destructor ran notice that this object is gone.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace penstock::process
