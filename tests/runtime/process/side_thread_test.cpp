#include "runtime/process/side_thread.hpp"

#include "runtime/process/gpu_use_watch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

/// A place where a task can hang.
struct obstacle {
  std::promise<void> reached;
  std::promise<void> removed;
};

std::function<void()> stuck_in(const std::shared_ptr<obstacle>& what) {
  return [what] {
    what->reached.set_value();
    what->removed.get_future().wait();
  };
}

/// Suspends this process; another one continues it.
void suspend_for(std::chrono::milliseconds time) {
  const pid_t self = ::getpid();
  const pid_t other = ::fork();
  if (other == 0) {
    ::poll(nullptr, 0, static_cast<int>(time.count()));
    while (::getppid() == self) {  // this process may not be suspended yet
      ::kill(self, SIGCONT);
      ::poll(nullptr, 0, 50);
    }
    ::_exit(0);
  }
  ::raise(SIGSTOP);  // to this thread, which must not continue before it is stopped
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

}  // namespace

TEST_CASE(
    "a process that was suspended for longer than it waits for its thread still gives it the full time") {
  side_thread thread("test");
  thread.post([] {
    std::this_thread::sleep_for(50ms);  // the thread's work; the other thread waits by now
    suspend_for(600ms);
    std::this_thread::sleep_for(30ms);
  });
  CHECK(thread.wait_until_idle(550ms));  // 550 ms is less than the suspension
}

TEST_CASE("a side thread runs its tasks in order, and is idle only after the last one") {
  side_thread thread("test");
  const auto order = std::make_shared<std::vector<int>>();
  for (int i = 0; i < 100; ++i) CHECK(thread.post([order, i] { order->push_back(i); }));
  REQUIRE(thread.wait_until_idle(10s));
  REQUIRE(order->size() == 100);
  CHECK(order->front() == 0);
  CHECK(order->back() == 99);
  CHECK(thread.stop_within(10s));
  CHECK_FALSE(thread.post([] {}));
}

TEST_CASE("a side thread that never started is idle and stops at once") {
  side_thread thread("test");
  CHECK(thread.wait_until_idle(0ms));
  CHECK(thread.stop_within(0ms));
}

TEST_CASE("a side thread with a hung task is abandoned, and its waiting tasks are dropped") {
  const auto what = std::make_shared<obstacle>();
  const auto ran = std::make_shared<bool>(false);
  side_thread thread("test");
  thread.post(stuck_in(what));
  thread.post([ran] { *ran = true; });
  what->reached.get_future().wait();
  CHECK_FALSE(thread.wait_until_idle(10ms));
  CHECK_FALSE(thread.stop_within(10ms));
  CHECK(ran.use_count() == 1);
  CHECK_FALSE(*ran);
  what->removed.set_value();
}

TEST_CASE(
    "a process that hangs while being examined blocks no caller and hides others for at most two steps") {
  const auto what = std::make_shared<obstacle>();
  const auto looks_at_7 = std::make_shared<std::atomic<int>>(0);
  gpu_use_watch watch([=](pid_t leader) -> std::optional<gpu_user> {
    if (leader == 7 && ++*looks_at_7 == 1) stuck_in(what)();
    return gpu_user{leader + 1, "libcuda.so.1 is mapped"};
  });
  watch.look({8, 9, 7});  // examines 7 first, which hangs
  what->reached.get_future().wait();
  CHECK_FALSE(watch.found_in(8));
  watch.look({8, 9, 7});  // 7 might only be slow
  watch.look({8, 9, 7});
  // Polled like the supervisor does, without waiting.
  while (!watch.found_in(8) || !watch.found_in(9)) std::this_thread::yield();
  CHECK(watch.found_in(8)->pid == 9);
  CHECK_FALSE(watch.found_in(7));
  CHECK(*looks_at_7 == 1);
  what->removed.set_value();
  while (!watch.found_in(7)) std::this_thread::yield();
  while (watch.found_in(8)) watch.look({9, 7});  // 8 is no longer in the list
}

TEST_CASE("a watch can be destroyed even if its examinations hang") {
  const auto removed = std::make_shared<std::promise<void>>();
  const auto gone = std::make_shared<std::atomic<int>>(0);
  const auto until = removed->get_future().share();
  const auto begin = std::chrono::steady_clock::now();
  {
    gpu_use_watch watch([=](pid_t) -> std::optional<gpu_user> {
      ++*gone;
      until.wait();
      return std::nullopt;
    });
    for (int hanging = 1; hanging <= 3; ++hanging) {
      while (*gone < hanging) watch.look({1, 2, 3});
    }
  }
  CHECK(std::chrono::steady_clock::now() - begin < 2 * side_thread::patience);
  removed->set_value();
}
