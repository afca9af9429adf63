#include "runtime/process/side_thread.hpp"

#include "runtime/base/patient_wait.hpp"
#include "runtime/base/signals.hpp"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace penstock::process {

struct side_thread::state {
  explicit state(const char* its_name) : name(its_name) {}

  const char* const name;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool busy = false;
  bool stopped = false;
  bool finished = false;
  std::thread thread;

  void work() {
    ::pthread_setname_np(::pthread_self(), name);
    std::unique_lock hold(mutex);
    while (true) {
      changed.wait(hold, [&] { return stopped || !tasks.empty(); });
      if (stopped) break;
      auto task = std::exchange(tasks.front(), {});
      tasks.pop_front();
      busy = true;
      hold.unlock();
      task();
      task = {};
      hold.lock();
      busy = false;
      changed.notify_all();
    }
    finished = true;
    changed.notify_all();
  }
};

side_thread::side_thread(const char* name) : state_(std::make_shared<state>(name)) {}

side_thread::~side_thread() {
  stop_within(patience);
}

bool side_thread::post(std::function<void()> task) {
  const std::lock_guard hold(state_->mutex);
  if (state_->stopped) return false;
  if (!state_->thread.joinable()) {
    const all_signals_blocked quiet;
    try {
      state_->thread = std::thread([kept = state_] { kept->work(); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
  return true;
}

bool side_thread::wait_until_idle(std::chrono::milliseconds at_most) {
  std::unique_lock hold(state_->mutex);
  return is_done_within(state_->changed, hold, at_most, [&] { return state_->tasks.empty() && !state_->busy; });
}

bool side_thread::stop_within(std::chrono::milliseconds at_most) {
  // Destroyed after the lock is released, because tasks may own anything.
  std::deque<std::function<void()>> dropped;
  std::unique_lock hold(state_->mutex);
  state_->stopped = true;
  dropped.swap(state_->tasks);
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return true;
  const bool ended = is_done_within(state_->changed, hold, at_most, [&] { return state_->finished; });
  std::thread thread = std::move(state_->thread);
  hold.unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
  return ended;
}

}  // namespace penstock::process
