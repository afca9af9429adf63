#include "runtime/process/side_thread.hpp"

#include "runtime/process/gpu_use_watch.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace penstock::process;
using namespace std::chrono_literals;

namespace {

/// What a task may hang in.
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

}  // namespace

TEST_CASE("tasks of a side thread run in order, all of them before it is idle") {
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

TEST_CASE("a side thread that never began is idle and stops at once") {
  side_thread thread("test");
  CHECK(thread.wait_until_idle(0ms));
  CHECK(thread.stop_within(0ms));
}

TEST_CASE("a side thread whose task hangs is left behind, and what had not begun is dropped") {
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

TEST_CASE("a process that hangs while it is looked at holds up nobody who asks about the GPU") {
  const auto what = std::make_shared<obstacle>();
  const auto looks = std::make_shared<std::atomic<int>>(0);
  {
    gpu_use_watch watch([=](pid_t leader) -> std::optional<gpu_user> {
      if (++*looks == 3) stuck_in(what)();
      return leader == 8 ? std::optional(gpu_user{9, "libcuda.so.1 is mapped"}) : std::nullopt;
    });
    watch.look({7, 8});
    // Asked as the supervisor does: again and again, never waiting.
    while (!watch.found_in(8)) std::this_thread::yield();
    CHECK(watch.found_in(8)->pid == 9);
    CHECK_FALSE(watch.found_in(7));
    watch.look({7});  // hangs
    what->reached.get_future().wait();
    watch.look({8});  // is not waited for
    CHECK(watch.found_in(8));
    CHECK(*looks == 3);
    what->removed.set_value();
    while (watch.found_in(8)) std::this_thread::yield();  // it was not named any more
  }
}
