// A clock that rings on a thread of its own: how a device gets its owner to check on copies without a callback of the
// driver. Makes no CUDA call itself. Used by the CUDA device.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/fd.hpp"

#include <functional>
#include <mutex>
#include <thread>

namespace penstock::device {

/// The thread sleeps while nothing is set, and never takes a signal that is meant for the program around us.
class alarm {
 public:
  alarm();
  ~alarm();
  alarm(const alarm&) = delete;
  alarm& operator=(const alarm&) = delete;

  /// Rings once, at that time or a little later; at once if it is past. Replaces what was set before. Postponing
  /// costs no system call, so it may be done often.
  void set(steady_time at);
  /// Called on the alarm's thread. A function that was replaced is no longer called when this returns.
  void on_ring(std::function<void()> call);

 private:
  void run();
  void start_timer(steady_time at);
  bool is_due();

  unique_fd timer_;
  unique_fd stop_;
  std::mutex times_;  // of the next two
  steady_time due_ = never;
  steady_time timer_ends_ = never;  // not after due_
  std::mutex calling_;
  std::function<void()> call_;
  std::thread thread_;
};

}  // namespace penstock::device
