// The session's one thread for waiting: sockets, pidfds, pipes and timers run on its io_context, and children
// are spawned on it, because PR_SET_PDEATHSIG follows the spawning thread.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <thread>

namespace penstock::process {

class io_thread {
 public:
  io_thread();
  /// Runs what is ready, drops what is not, joins.
  ~io_thread();
  io_thread(const io_thread&) = delete;
  io_thread& operator=(const io_thread&) = delete;

  [[nodiscard]] boost::asio::io_context& context() noexcept { return context_; }
  [[nodiscard]] bool runs_this_code() const noexcept {
    return std::this_thread::get_id() == thread_.get_id();
  }

 private:
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> keep_running_;
  std::thread thread_;
};

}  // namespace penstock::process
