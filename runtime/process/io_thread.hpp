// The session's I/O thread: sockets, pidfds, pipes and timers run on its io_context. Nothing on it may wait
// for a file system, because it also sends signals to children. So a separate thread starts the children.
#pragma once

#include "runtime/process/spawner.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <thread>

namespace penstock::process {

class io_thread {
 public:
  io_thread();
  /// Runs ready handlers, drops the rest, joins the thread. Takes up to side_thread::patience longer if a
  /// program that is being started is on a file system that does not respond.
  ~io_thread();
  io_thread(const io_thread&) = delete;
  io_thread& operator=(const io_thread&) = delete;

  [[nodiscard]] boost::asio::io_context& context() noexcept { return context_; }
  /// The spawner's thread starts with the first child and ends with this object.
  [[nodiscard]] process::spawner& spawner() noexcept { return spawner_; }

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_running_;
  process::spawner spawner_;  // posts to context_, so it must be destroyed first
  std::thread thread_;
};

}  // namespace penstock::process
