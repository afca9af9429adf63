// Lets any thread wake a thread that waits in poll().
#pragma once

#include "runtime/base/fd.hpp"

#include <sys/eventfd.h>

namespace penstock {

class wake_event {
 public:
  /// -1, if the process has no descriptor left.
  [[nodiscard]] int fd() const noexcept { return event_.get(); }
  /// Makes fd() readable.
  void raise() const noexcept { ::eventfd_write(event_.get(), 1); }
  /// Clears the event: earlier calls to raise() no longer count.
  void clear() const noexcept {
    eventfd_t times = 0;
    ::eventfd_read(event_.get(), &times);
  }

 private:
  unique_fd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace penstock
