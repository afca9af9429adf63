// The thread on which a pool runs callbacks (Job::then), so that no actor waits for user code. Callbacks run
// in the order of call(). The queue is bounded by the number of jobs with callbacks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace penstock::jobs {

class callback_thread {
 public:
  callback_thread();
  ~callback_thread();
  callback_thread(const callback_thread&) = delete;
  callback_thread& operator=(const callback_thread&) = delete;

  /// Ignored after stop().
  void call(std::function<void()> callback);
  /// Runs the queued callbacks, then joins the thread. Called from within a callback, it cannot join: it
  /// returns at once and the thread ends after that. Exceptions from callbacks are logged and dropped.
  void stop() noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::jobs
