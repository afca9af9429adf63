// The template of a pool's workers: one executed process that imports what they need, and then forks them. A start
// costs milliseconds instead of these imports. Used by actors/supervisor (worker_processes), on the io thread only. Nothing here waits:
// orders go over a socket, answers come back as events.
//
//            executed            ready                  declined (it must not fork, and says why)
//   absent ----------> preparing -----> ready ---+----------------------------------> declined: workers are executed
//      ^                  |               |      |
//      +---- it ends -----+---------------+      forks a worker for each order
//
// Its end: while it prepares, it stands for every worker that waits, since each would have done the same; after that
// only for the one that it was to fork. The others wait for the next template. Its workers live on.
#pragma once

#include "runtime/process/child_process.hpp"
#include "runtime/process/fork_order.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::process {

class worker_template {
 public:
  struct callbacks {
    std::function<void(std::string_view line)> output;
    /// What the starts wait for; empty: not for the template.
    std::function<void(std::string)> waits;
    /// The template has ended before it forked this worker.
    std::function<void(std::uint32_t worker, pid_t, const exit_report&, const output_tail&)> ended_for;
  };

  /// `program`: how the template is executed, without descriptors.
  worker_template(io_thread& io, spawn_request program, callbacks calls);
  /// Kills the template. Calls nothing more.
  ~worker_template();
  worker_template(const worker_template&) = delete;
  worker_template& operator=(const worker_template&) = delete;

  /// As spawner::start: of the request, only the descriptors count for a forked worker. `then` is not called for a
  /// worker whose end was reported by `ended_for`.
  std::shared_ptr<start_control> start(std::uint32_t worker, spawn_request request, spawner::done then);
  /// Gives up a start that waits: it is refused. When none is left, a template that is not ready, or has not
  /// answered, is killed.
  void give_up(std::uint32_t worker);

 private:
  enum class stage : std::uint8_t { absent, executing, preparing, ready, declined };
  struct order {
    std::uint64_t number = 0;
    std::uint32_t worker = 0;
    spawn_request request;
    std::vector<unique_fd> descriptors;
    spawner::done then;
    bool sent = false;
  };

  void execute();
  void executed(result<unclaimed_child> made, unique_fd socket, unique_fd output);
  void send_waiting();
  void listen();
  void hear(received_answer&& got);
  void forked(received_answer&& got);
  void decline(const std::string& why);
  void ended(const exit_report& report, const output_tail& tail);
  void refuse_all(const failure& why);
  std::shared_ptr<start_control> execute_worker(order& one);
  void note(std::string text);

  io_thread& io_;
  spawn_request program_;
  callbacks calls_;
  stage at_ = stage::absent;
  std::deque<order> orders_;  // not answered yet, oldest first
  std::uint64_t last_number_ = 0;
  std::unique_ptr<child_process> process_;
  std::shared_ptr<start_control> control_;  // while it is being executed
  boost::asio::posix::stream_descriptor socket_;
  std::string text_;
  std::shared_ptr<void> alive_ = std::make_shared<char>();
};

}  // namespace penstock::process
