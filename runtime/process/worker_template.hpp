// The template of a pool's workers: a process that imports what they need, and then forks them. Starting a
// worker then takes milliseconds, without these imports. Used by actors/supervisor (worker_processes), on
// the io thread only. Nothing here waits: orders go over a socket, answers come back as events. fork_book
// decides what happens when.
#pragma once

#include "runtime/process/child_process.hpp"
#include "runtime/process/fork_book.hpp"
#include "runtime/process/fork_order.hpp"
#include "runtime/process/io_thread.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::process {

class worker_template {
 public:
  struct callbacks {
    std::function<void(std::string_view line)> output;
    /// Reports what the waiting starts wait for. An empty text: they no longer wait for the template.
    std::function<void(std::string)> waits;
    /// The template has ended before it forked this worker.
    std::function<void(std::uint32_t worker, pid_t, const exit_report&, const output_tail&)> ended_for;
    std::function<void()> ready;
    /// The template has ended. Returns when the next one may start. Empty if workers start with exec from now on.
    std::function<std::optional<steady_time>()> ended;
  };

  /// `program`: how the template is started, without descriptors.
  worker_template(io_thread& io, spawn_request program, callbacks calls);
  /// Kills the template. No callback follows.
  ~worker_template();
  worker_template(const worker_template&) = delete;
  worker_template& operator=(const worker_template&) = delete;

  /// Like spawner::start, but a forked worker uses only the descriptors of the request. `then` is not called for a
  /// worker whose end `ended_for` has reported.
  std::shared_ptr<start_control> start(std::uint32_t worker, spawn_request request, spawner::done then);
  /// Gives up a waiting start, which is then refused. If no start is left, kills a template that is not
  /// ready or does not answer.
  void give_up(std::uint32_t worker);

 private:
  struct waiting_worker {
    std::uint32_t worker = 0;
    spawn_request request;
    std::vector<unique_fd> descriptors;
    spawner::done then;
  };

  void look();
  void execute();
  void executed(result<unclaimed_child> made, unique_fd socket, unique_fd output);
  void refuse(const std::vector<fork_book::number>& orders, const failure& why);
  void send_waiting();
  void listen();
  void hear(received_answer&& got);
  void hear_the_rest();
  void forked(received_answer&& got);
  void execute_workers();
  void ended(const exit_report& report, const output_tail& tail);
  void plan_next(pid_t pid, const exit_report& report);
  waiting_worker take(fork_book::number order);
  void note(std::string text);

  io_thread& io_;
  spawn_request program_;
  callbacks calls_;
  fork_book book_;
  std::map<fork_book::number, waiting_worker> waiting_;                // by order
  std::map<std::uint32_t, std::shared_ptr<start_control>> executing_;  // workers that start with exec, not fork
  std::unique_ptr<child_process> process_;
  std::shared_ptr<start_control> control_;  // set until the template's exec has succeeded
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer next_;  // when to look again
  std::string text_;
  std::shared_ptr<void> alive_ = std::make_shared<char>();
};

}  // namespace penstock::process
