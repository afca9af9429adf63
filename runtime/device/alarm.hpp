// A timer with its own thread: lets a device wake its owner to check on copies without a driver callback.
// Makes no CUDA call itself. Used by the CUDA device.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/base/wake_event.hpp"

#include <functional>
#include <mutex>
#include <thread>

namespace penstock::device {

/// The thread sleeps while no time is set, and blocks all signals.
class alarm {
 public:
  alarm();
  ~alarm();
  alarm(const alarm&) = delete;
  alarm& operator=(const alarm&) = delete;

  /// Fires once, at that time or slightly later, or at once if the time has passed. Replaces the previous time.
  /// Postponing costs no system call, so it can be done often.
  void set(steady_time at);
  /// Sets the function to call on the alarm's thread. Once this returns, the previous function is no longer called.
  void on_ring(std::function<void()> call);

 private:
  void run();
  void start_timer(steady_time at);
  bool is_due();

  unique_fd timer_;
  wake_event stop_;
  std::mutex times_;  // guards the next two members
  steady_time due_ = never;
  steady_time timer_ends_ = never;  // never later than due_
  std::mutex calling_;
  std::function<void()> call_;
  std::thread thread_;
};

}  // namespace penstock::device
