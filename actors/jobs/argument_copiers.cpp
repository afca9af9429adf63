#include "actors/jobs/argument_copiers.hpp"

#include "runtime/base/signals.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace penstock::jobs {

class argument_copiers::copier {
 public:
  copier() {
    const all_signals_blocked quiet;
    thread_ = std::thread([this] { run(); });
  }
  ~copier() {
    {
      const std::lock_guard hold(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  copier(const copier&) = delete;
  copier& operator=(const copier&) = delete;

  void add(std::function<void()> work) {
    {
      const std::lock_guard hold(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    ::pthread_setname_np(::pthread_self(), "penstock-args");
    std::unique_lock hold(mutex_);
    while (true) {
      changed_.wait(hold, [this] { return stopped_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto work = std::move(queue_.front());
      queue_.pop_front();
      hold.unlock();
      work();
      work = {};  // its destructors may run code of the argument's owner
      hold.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopped_ = false;
  std::thread thread_;
};

std::uint32_t argument_copiers::usual_threads() noexcept {
  return std::clamp(std::thread::hardware_concurrency(), 1U, threads_max);
}

argument_copiers::argument_copiers(std::uint32_t threads) : copiers_(threads) {}

argument_copiers::~argument_copiers() = default;

void argument_copiers::add(std::uint32_t place, std::function<void()> work) {
  std::unique_ptr<copier>& one = copiers_[place % copiers_.size()];
  if (!one) one = std::make_unique<copier>();
  one->add(std::move(work));
}

}  // namespace penstock::jobs
