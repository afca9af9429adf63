#include "actors/jobs/callback_thread.hpp"

#include "actors/jobs/admission.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/signals.hpp"

#include <algorithm>
#include <exception>
#include <future>
#include <iterator>
#include <utility>
#include <vector>

namespace penstock::jobs {

// Shared with the thread, which outlives the object if a callback destroys it.
struct callback_thread::work {
  explicit work(std::function<void(const std::function<void()>&)> f) : around(std::move(f)) {}

  static constexpr std::size_t burst_max = 64;  // so that an interpreter's lock is released often
  const std::function<void(const std::function<void()>&)> around;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool stopped = false;
  std::promise<schedule::job_bounds::thread_number> numbered;
  schedule::job_bounds::thread_number number = 0;

  void run() {
    numbered.set_value(this_thread());
    std::unique_lock hold(mutex);
    while (true) {
      changed.wait(hold, [this] { return stopped || !queue.empty(); });
      if (queue.empty()) return;
      const auto some = queue.begin() + static_cast<std::ptrdiff_t>(std::min(queue.size(), burst_max));
      std::vector burst(std::move_iterator(queue.begin()), std::move_iterator(some));
      queue.erase(queue.begin(), some);
      hold.unlock();
      const auto run_all = [&burst] {
        for (auto& callback : burst) {
          callback_thread::run(callback);
          callback = {};  // destroys its captures
        }
      };
      if (around) {
        callback_thread::run([&] { around(run_all); });
      } else {
        run_all();
      }
      hold.lock();
    }
  }
};

callback_thread::callback_thread(std::function<void(const std::function<void()>&)> around)
    : work_(std::make_shared<work>(std::move(around))) {
  const all_signals_blocked quiet;
  thread_ = std::thread([shared = work_] { shared->run(); });
  work_->number = work_->numbered.get_future().get();
}

callback_thread::~callback_thread() {
  stop();
}

schedule::job_bounds::thread_number callback_thread::number() const noexcept {
  return work_->number;
}

bool callback_thread::call(const std::function<void()>& callback) {
  const std::lock_guard hold(work_->mutex);
  if (work_->stopped) return false;
  work_->queue.push_back(callback);
  work_->changed.notify_one();
  return true;
}

void callback_thread::run(const std::function<void()>& callback) noexcept {
  try {
    callback();
  } catch (const std::exception& e) {
    log::error("jobs", "a callback of Job::then threw: {}", e.what());
  } catch (...) {
    log::error("jobs", "a callback of Job::then threw an exception that is not a std::exception");
  }
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
