// The thread on which a pool runs callbacks (Job::then), so that no actor waits for user code. Runs callbacks
// in the order of call(), in bursts. The number of jobs with callbacks bounds the queue.
#pragma once

#include "runtime/schedule/job_bounds.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace penstock::jobs {

class callback_thread {
 public:
  /// `around` is called on the thread with a function that runs waiting callbacks (pool_options::around_callbacks).
  explicit callback_thread(std::function<void(const std::function<void()>&)> around = {});
  ~callback_thread();
  callback_thread(const callback_thread&) = delete;
  callback_thread& operator=(const callback_thread&) = delete;

  /// Queues a callback. False after stop(): the callback will not run on this thread.
  bool call(const std::function<void()>& callback);
  /// Runs a callback on the calling thread, as the callback thread would.
  static void run(const std::function<void()>& callback) noexcept;
  [[nodiscard]] schedule::job_bounds::thread_number number() const noexcept;
  /// Runs the queued callbacks, then joins the thread. Called from a callback, it cannot join: it returns at
  /// once, and the thread ends afterwards. Exceptions from callbacks are logged and dropped.
  void stop() noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::jobs
