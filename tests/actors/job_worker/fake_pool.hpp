// The session's side of one worker process of a pool: starts the program as sessions do, and sends messages
// for the test over the link. Used by job_main_test.cpp and command_test.cpp.
#pragma once

#include "actors/protocol/wire.hpp"
#include "actors/supervisor/linked_child.hpp"
#include "runtime/arena/flight_recorder.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/lifeline.hpp"
#include "tests/actors/job_worker/session_side.hpp"

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace penstock::testing {

class fake_pool : public session_side {
 public:
  explicit fake_pool(std::vector<std::string> command, std::uint64_t slot_bytes = 1 << 20,
                     std::uint64_t elsewhere_max = 64 << 20);
  ~fake_pool();
  fake_pool(const fake_pool&) = delete;
  fake_pool& operator=(const fake_pool&) = delete;

  void say(const protocol::to_worker& message);
  void say_bytes(std::string_view bytes);
  /// Closes the session's end of the link.
  void hang_up() { link_.reset(); }
  /// The next message. Fails the test if the worker has closed the link or sends nothing for 20 s.
  protocol::from_worker hear();
  template <class Message>
  Message hear_a() {
    protocol::from_worker message = hear();
    if (const auto* expected = std::get_if<Message>(&message)) return *expected;
    unexpected(message);
  }
  /// The whole introduction, as in a session, until the worker is ready.
  void introduce();

  protocol::run_jobs lease(const std::vector<job>& jobs, std::uint32_t slot = 0) {
    return session_side::lease(functions, jobs, slot);
  }
  /// Sends a lease and waits until all of its rows have ended.
  std::vector<read_row> run(const std::vector<job>& jobs);
  read_row run_one(const job& one) { return run({one}).at(0); }

  /// Waits until the first row of the slot is in this state.
  void wait_for(std::uint32_t slot, arena::row_state state) const;

  process::exit_report end_of_process();
  /// Everything that the worker wrote to stdout and stderr (the last 64 KiB); after end_of_process().
  [[nodiscard]] const std::string& output() const { return output_; }
  void signal(int number);
  /// The worker's pid, until it exits.
  [[nodiscard]] pid_t pid() const;

  std::uint64_t elsewhere_max;
  std::vector<std::string> functions;
  arena::flight_recorders flights = arena::flight_recorders::create(1).value();

 private:
  [[noreturn]] static void unexpected(const protocol::from_worker& message);

  process::lifeline lifeline_ = process::lifeline::create().value();
  std::unique_ptr<process::io_thread> io_ = std::make_unique<process::io_thread>();
  std::unique_ptr<process::child_process> process_;
  unique_fd link_;
  protocol::frame_reader<protocol::from_worker> reader_;
  std::deque<protocol::from_worker> heard_;
  std::promise<process::exit_report> ended_;
  std::string output_;
};

}  // namespace penstock::testing
