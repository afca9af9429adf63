// Runs work that creates or destroys actors on a temporary thread. Used by sessions, pools and GPU owners in this process.
#pragma once

#include "runtime/base/signals.hpp"

#include <future>
#include <thread>
#include <utility>

namespace penstock::host {

/// Runs the work on such a thread and waits for it. CAF leaves a reference to the system's logger in a
/// thread_local of each thread that spawns actors, and the system's destructor waits until all references are
/// gone: forever if such a thread keeps running. In exit() the main thread's thread_local is even destroyed
/// before static objects, so a static Session would release it twice. In addition, threads started from this
/// one have all signals blocked.
template <class Work>
void on_a_fresh_thread(Work work) {
  std::packaged_task<void()> task(std::move(work));
  auto done = task.get_future();
  {
    const all_signals_blocked quiet;
    std::thread(std::move(task)).join();
  }
  done.get();
}

}  // namespace penstock::host
