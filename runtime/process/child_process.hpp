// Watches a child: notices its end through the pidfd and keeps its output. Runs on the io_thread.
#pragma once

#include "runtime/base/patient_deadline.hpp"
#include "runtime/process/child_end.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::process {

/// The last output of a process on stdout and stderr, and its lines as they arrive. The pipe is read
/// all the time, so that even a flood of output does not block the process. Lines are cut at line_max.
class output_tail {
 public:
  static constexpr std::size_t line_max = 4096;   ///< longer lines are cut here
  static constexpr std::size_t lines_shown = 10;  ///< the last lines, in messages and death reports
  /// What a death report shows must fit: lines_shown x line_max for the last lines, and stack_bytes_max
  /// (crash_notes.hpp) for the stack. Together these are 63 KiB; the rest is for output between the two.
  static constexpr std::size_t kept_bytes = 64 * 1024;

  /// Appends a piece of output; calls `line` for each complete line.
  void append(std::string_view piece, const std::function<void(std::string_view)>& line);
  /// Call when the process is gone: passes on the unfinished last line.
  void finish(const std::function<void(std::string_view)>& line);
  /// All output that is kept.
  [[nodiscard]] const std::string& text() const noexcept { return kept_; }
  /// The last lines, for an error message.
  [[nodiscard]] std::string last_lines(std::size_t count) const;

 private:
  std::string kept_;
  std::string partial_;
};

struct child_callbacks {
  std::function<void(std::string_view line)> output;
  /// Called once, when the process is reaped, the rest of its group is gone (or `dies_within` has passed) and
  /// its last output has been read. Before that, memory shared with it may still be written.
  std::function<void(const exit_report&, const output_tail&)> exited;
};

/// Construct, use and destroy on the io_thread. If the process is still running, destruction kills the whole
/// group and reaps it, waiting up to `time_to_die`.
class child_process {
 public:
  /// After SIGKILL, only a process in an uninterruptible system call takes longer. Such a process
  /// is left for init to reap.
  static constexpr std::chrono::milliseconds time_to_die{2000};

  /// Watches a started child. `output_pipe` may be empty. `dies_within`: how long its group may take to die before it is reported
  /// anyway. Refuses with errc::system if the kernel does not allow watching it; the child is then killed.
  static result<std::unique_ptr<child_process>> watch(boost::asio::io_context& io, child started, unique_fd output_pipe,
                                                      child_callbacks callbacks, std::chrono::milliseconds dies_within = time_to_die);
  ~child_process();
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid; }
  [[nodiscard]] bool running() const noexcept { return running_; }
  /// Signals the whole group. Does nothing if it is gone.
  void signal(int number) noexcept;
  [[nodiscard]] const output_tail& output() const noexcept { return tail_; }

 private:
  static constexpr nanoseconds look_every = look_interval(time_to_die, time_to_die);

  child_process(boost::asio::io_context& io, child started, child_callbacks callbacks, std::chrono::milliseconds dies_within);
  void wait_for_end();
  void let_it_leave();
  void wait_for_output();
  bool read_output();
  void ended();
  void look_at_time_to_die();
  void wait_for_rest_of_group();
  void stop_waiting_for_member();
  void finish();

  child child_;
  child_callbacks callbacks_;
  boost::asio::posix::stream_descriptor end_;  // watches child_.pidfd, which owns the descriptor
  boost::asio::posix::stream_descriptor output_;
  output_tail tail_;
  bool running_ = true;
  exit_report report_;
  std::vector<unique_fd> left_over_;              // processes of its group, once the child itself is reaped
  boost::asio::posix::stream_descriptor member_;  // watches left_over_.back(), which owns the descriptor
  boost::asio::steady_timer patience_;            // time_to_leave, then look_every
  patient_deadline dying_;
  // Asio may have queued a completion that it can no longer cancel; through this the completion notices that
  // the object is gone.
  std::shared_ptr<void> alive_ = std::make_shared<char>();
};

}  // namespace penstock::process
