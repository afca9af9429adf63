// A thread for work that may block forever: on an unresponsive file system, a lock of another process, the
// memory map of a hung process. Such waits do not block other threads, and a session can end while this
// thread is stuck. Used by spawner, gpu_use_watch, quarantine writer and program_communicator.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace penstock::process {

class side_thread {
 public:
  /// How long destruction waits for the current task.
  static constexpr std::chrono::milliseconds patience{2000};

  /// `name`: as debuggers show it, at most 15 characters. The thread starts with the first task.
  explicit side_thread(const char* name);
  /// stop_within(patience), unless it was already stopped.
  ~side_thread();
  side_thread(const side_thread&) = delete;
  side_thread& operator=(const side_thread&) = delete;

  /// Queues a task after earlier ones. From any thread; does not wait. The task must own what it uses, because it may
  /// outlive this object. Returns false if the task will never run: no thread could be started, or this object was
  /// stopped.
  bool post(std::function<void()> task);

  /// Waits until all tasks are done, at most `at_most`. Returns whether they are.
  bool wait_until_idle(std::chrono::milliseconds at_most);

  /// Drops the tasks that have not started and waits for the current one. Returns false
  /// if the time ran out; the thread is then abandoned, and ends when its task does.
  bool stop_within(std::chrono::milliseconds at_most);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace penstock::process
