#include "actors/jobs/callback_thread.hpp"

#include "runtime/base/log.hpp"
#include "runtime/base/signals.hpp"

#include <exception>

namespace penstock::jobs {

// Shared with the thread, which outlives the object if a callback destroys it.
struct callback_thread::work {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stopped = false;

  void run() {
    std::unique_lock hold(mutex);
    while (true) {
      changed.wait(hold, [this] { return stopped || !queue.empty(); });
      if (queue.empty()) return;
      auto callback = std::move(queue.front());
      queue.pop_front();
      hold.unlock();
      try {
        callback();
      } catch (const std::exception& e) {
        log::error("jobs", "a callback of Job::then threw: {}", e.what());
      } catch (...) {
        log::error("jobs", "a callback of Job::then threw an exception that is not a std::exception");
      }
      callback = {};  // destroys its captures without holding the lock
      hold.lock();
    }
  }
};

callback_thread::callback_thread() : work_(std::make_shared<work>()) {
  const all_signals_blocked quiet;
  thread_ = std::thread([shared = work_] { shared->run(); });
}

callback_thread::~callback_thread() {
  stop();
}

void callback_thread::call(std::function<void()> callback) {
  const std::lock_guard hold(work_->mutex);
  if (work_->stopped) return;
  work_->queue.push_back(std::move(callback));
  work_->changed.notify_one();
}

void callback_thread::stop() noexcept {
  {
    const std::lock_guard hold(work_->mutex);
    work_->stopped = true;
    work_->changed.notify_one();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

}  // namespace penstock::jobs
