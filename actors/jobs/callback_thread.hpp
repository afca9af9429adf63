// The thread on which a pool calls its caller's functions (Job::then): never an actor's, which must not wait for them.
// Calls come in the order in which they were asked for. Its queue is bounded by the jobs that have callbacks.
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

  /// Dropped after stop().
  void call(std::function<void()> callback);
  /// What is queued is still called, then the thread ends; waits for it. From within a callback it cannot wait: that
  /// call is the last one that anybody waits for. Exceptions of callbacks are logged and go no further.
  void stop() noexcept;

 private:
  struct work;
  std::shared_ptr<work> work_;
  std::thread thread_;
};

}  // namespace penstock::jobs
