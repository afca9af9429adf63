// One run of `penstock launch`: carries out the commands of launch_book. Starts the ranks' processes,
// forwards their output, and reports their ends to the book.
#pragma once

#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"
#include "tools/penstock/launch/launch_book.hpp"
#include "tools/penstock/launch/launch_plan.hpp"
#include "tools/penstock/launch/line_writer.hpp"
#include "tools/penstock/launch/rank_output.hpp"

#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace penstock::cli {

struct launch_work {
  std::string program;                                                    ///< a path
  std::function<std::vector<std::string>(std::uint32_t rank)> arguments;  ///< argv[1..]
  std::vector<std::string> environment;                                   ///< ours
  std::vector<rank_place> places;
  launch_names names;
  launch_rules rules;
  bool all_to_stderr = false;  ///< stdout is for the report
  bool prefixed = true;
  std::vector<std::string> colours;              ///< of prefixes, by rank; empty: none
  std::function<void(const std::string&)> tell;  ///< a line for the user; called on the io thread
};

struct launch_result {
  launch_outcome outcome = launch_outcome::finished;
  std::optional<launch_cause> cause;
  std::uint32_t restarts = 0;
  std::vector<rank_facts> ranks;
  std::vector<std::string> last_lines;  ///< of each rank's stderr
};

class launch_run {
 public:
  launch_run(process::io_thread& io, launch_work work);
  /// Kills all processes that still run.
  ~launch_run();
  launch_run(const launch_run&) = delete;
  launch_run& operator=(const launch_run&) = delete;

  /// Returns when all ranks are gone.
  [[nodiscard]] launch_result run();
  /// The user's signal; `at_once` for the second. Any thread.
  void stop(int signal, bool at_once);

 private:
  struct rank_process {
    std::unique_ptr<process::child_process> child;
    std::unique_ptr<rank_output> out;
    std::unique_ptr<rank_output> err;
  };

  void act();
  void start(std::uint32_t rank);
  void started(std::uint32_t rank, result<process::unclaimed_child> child, unique_fd out, unique_fd err);
  void exited(std::uint32_t rank, const process::exit_report& end);
  void clear_round();
  void tell_end(std::uint32_t rank) const;
  void arm();
  [[nodiscard]] std::string prefix_of(std::uint32_t rank) const;
  [[nodiscard]] bool is_rank(pid_t pid) const;

  // All but `work_` on the io thread.
  process::io_thread& io_;
  launch_work work_;
  launch_book book_;
  line_writer writer_;
  std::vector<rank_process> ranks_;
  std::vector<std::string> last_lines_;
  boost::asio::steady_timer timer_;
  std::promise<void> over_;
  bool told_over_ = false;
};

}  // namespace penstock::cli
