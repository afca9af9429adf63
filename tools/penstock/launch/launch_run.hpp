// One run of `penstock launch`: carries out the commands of launch_book. Starts the ranks' processes,
// forwards their output, and reports their ends to the book.
#pragma once

#include "runtime/process/child_process.hpp"
#include "runtime/process/io_thread.hpp"
#include "runtime/process/oom_watch.hpp"
#include "tools/penstock/launch/launch_book.hpp"
#include "tools/penstock/launch/launch_plan.hpp"
#include "tools/penstock/launch/line_writer.hpp"
#include "tools/penstock/launch/rank_news.hpp"
#include "tools/penstock/launch/rank_output.hpp"
#include "tools/penstock/launch/rank_progress.hpp"
#include "tools/penstock/state_keeper.hpp"

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::cli {

struct launch_work {
  std::string program;                                                    ///< a path
  std::function<std::vector<std::string>(std::uint32_t rank)> arguments;  ///< argv[1..]
  std::vector<std::string> environment;                                   ///< base environment
  std::vector<rank_place> places;
  launch_names names;
  launch_rules rules;
  /// The ranks are sessions that report their positions and can resume (rules.restart_one).
  bool resumable = false;
  std::vector<std::byte> state{};  ///< resumable: the group's state to resume from; empty: the stream's start
  std::shared_ptr<state_keeper> state_file{};  ///< resumable: where to keep the group's state; null: nowhere
  std::map<std::string, std::string> files{};  ///< what the launcher writes, by kind, for the ranks' status
  std::chrono::milliseconds state_every{10'000};  ///< how often to write the state
  bool all_to_stderr = false;                     ///< stdout is reserved for the report
  bool prefixed = true;
  std::vector<std::string> colours;              ///< prefix colours by rank; empty: none
  std::function<void(const std::string&)> tell;  ///< prints a line for the user; called on the io thread
};

struct launch_result {
  launch_outcome outcome = launch_outcome::finished;
  std::optional<launch_cause> cause;
  std::uint32_t restarts = 0;
  std::vector<rank_facts> ranks;
  std::vector<std::string> last_lines;  ///< the last lines of each rank's stderr
  std::vector<rank_history> histories;  ///< resumable: one per rank
  /// Why the latest attempt to write the state file failed.
  std::optional<failure> state_trouble{};
};

class launch_run {
 public:
  launch_run(process::io_thread& io, launch_work work);
  /// Kills all processes that are still running.
  ~launch_run();
  launch_run(const launch_run&) = delete;
  launch_run& operator=(const launch_run&) = delete;

  /// Returns when all ranks are gone. Writes the state file meanwhile.
  [[nodiscard]] launch_result run();
  /// The user's signal; `at_once` for the second. Any thread.
  void stop(int signal, bool at_once);

 private:
  struct rank_process {
    std::shared_ptr<process::start_control> start;  // set while the process is starting
    std::chrono::system_clock::time_point begun;
    std::unique_ptr<process::child_process> child;
    std::unique_ptr<rank_output> out;
    std::unique_ptr<rank_output> err;
    std::unique_ptr<rank_news> news;
  };
  /// Our ends of the channel and pipes of a rank.
  struct rank_ends {
    unique_fd out;
    unique_fd err;
    unique_fd channel;
  };

  void act();
  void look();
  void signal(const signal_rank& order);
  void start(const start_rank& order);
  void started(std::uint32_t rank, result<process::unclaimed_child> child, rank_ends ends);
  void start_failed(std::uint32_t rank, std::string why);
  /// Opens a channel whose other end already contains the rank's first line.
  result<unique_fd> open_channel(const start_rank& order, unique_fd& theirs);
  void remove_strays_of(std::uint32_t rank);
  void exited(std::uint32_t rank, const process::exit_report& end);
  void clear_round();
  void heard(std::uint32_t rank, const rank_progress& progress);
  /// The common state of all ranks; empty until every rank has sent one.
  [[nodiscard]] result<std::vector<std::byte>> group_state_now() const;
  void save_state();
  void tell_refused(std::uint32_t rank, const std::string& why);
  void tell_end(std::uint32_t rank);
  void note_lost(std::uint32_t rank);
  void arm();
  [[nodiscard]] std::string prefix_of(std::uint32_t rank) const;
  [[nodiscard]] bool is_rank(pid_t pid) const;

  // Everything but `work_` is used only on the io thread.
  process::io_thread& io_;
  launch_work work_;
  launch_book book_;
  line_writer writer_;
  std::vector<rank_process> ranks_;
  std::vector<std::string> last_lines_;
  std::vector<rank_history> histories_;
  std::vector<lost_process_report> lost_;  // the last 64 processes, oldest first
  process::oom_watch oom_;
  boost::asio::steady_timer timer_;
  steady_time look_at_{};     // when to poll the ranks next
  std::size_t starting_ = 0;  // processes that may exist, but whose start has not been reported yet
  std::promise<void> over_;
  bool told_over_ = false;
  std::shared_ptr<void> alive_ = std::make_shared<char>();  // a start may complete after our destruction
  std::optional<failure> state_trouble_;  // used by the thread in run()
};

}  // namespace penstock::cli
