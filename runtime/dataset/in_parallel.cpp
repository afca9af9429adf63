#include "runtime/dataset/in_parallel.hpp"

#include "runtime/base/signals.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

result<void> in_parallel(std::size_t count, unsigned threads, const std::function<result<void>(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> refused{false};
  std::mutex mutex;
  std::size_t first = count;
  result<void> outcome;
  const auto run = [&] {
    while (!refused) {
      const std::size_t i = next++;
      if (i >= count) return;
      auto done = work(i);
      if (done) continue;
      refused = true;
      const std::lock_guard lock(mutex);
      if (i >= first) continue;
      first = i;
      outcome = std::move(done);
    }
  };
  if (threads <= 1 || count <= 1) {
    run();
    return outcome;
  }
  {
    std::vector<std::jthread> running;
    const all_signals_blocked in_the_new_threads;
    for (std::size_t i = std::min<std::size_t>(threads, count); i > 0; --i) running.emplace_back(run);
  }
  return outcome;
}

}  // namespace penstock
