// A thread for what may wait for the world without end: a file system that does not answer, another process'
// lock, the memory map of a process that hangs. It keeps such waits away from the threads that others depend
// on, and a session can end although it is stuck. Used by spawner, gpu_use_watch and the session's quarantine
// writer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace penstock::process {

class side_thread {
 public:
  /// How long destruction waits for the task at hand.
  static constexpr std::chrono::milliseconds patience{2000};

  /// `name`: as debuggers show it, at most 15 characters. The thread begins with the first task.
  explicit side_thread(const char* name);
  /// stop_within(patience), unless it was stopped before.
  ~side_thread();
  side_thread(const side_thread&) = delete;
  side_thread& operator=(const side_thread&) = delete;

  /// Has a task run after those before it; from any thread, does not wait. The task must own what it uses: it
  /// may outlive this object. False when it never will run: no thread could be made, or this was stopped.
  bool post(std::function<void()> task);

  /// Waits until all tasks are done, or the time is over; whether they are.
  bool wait_until_idle(std::chrono::milliseconds at_most);

  /// Drops the tasks that have not begun, and waits for the one at hand. False if the time was over: the
  /// thread is left behind and ends when the task does.
  bool stop_within(std::chrono::milliseconds at_most);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace penstock::process
