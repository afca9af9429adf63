// Decides for `penstock launch` when a group's ranks start, get signals and are given up. Pure: events come
// in as calls with the time, commands come out of advance(). It decides for the group; each process is
// watched and ended like every other child (runtime/supervision: hang_detector, termination, restart_policy).
//
//            all started            a rank fails, or stop()              all gone
//   begin ----------------> running -----------------------> ending ----------------> over
//                              ^                                |
//                              +--------------------------------+  a restart is left
//
// Ranks form a group: a collective operation with a missing member never ends. A rank that fails (an exit
// code other than 0, a signal, a failed start) therefore ends the others, and all restart together, as with
// torchrun. A rank that exits with 0 has finished; the others continue.
//
// Ranks that can resume (`restart_one`) are different. Such a rank is lost if a signal ends it, if it cannot
// start, if it sends nothing within `start_deadline`, or later nothing for `lost_after`. It restarts alone,
// by the policy of workers and owners, while the others keep running. An exit code is the session's own
// decision and ends the group: with a failure, or by stopping the other ranks too if only this rank was
// stopped. A rank that the policy gives up fails as above, as does a rank that survives SIGKILL: its
// successor would need the same GPU.
// Such ranks are sessions of one group and report its end. From then on no process can find the group: a rank
// lost afterwards is started to deliver the rest without it, and a rank that still looks for the group is
// killed and started that way.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/exit_report.hpp"
#include "runtime/supervision/hang_detector.hpp"
#include "runtime/supervision/restart_policy.hpp"
#include "runtime/supervision/termination.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::cli {

struct launch_rules {
  std::uint32_t ranks = 1;
  std::uint32_t max_restarts = 0;  ///< counts restarts of all ranks together
  /// The policy for restarting a single rank; empty: a lost rank ends the others.
  std::optional<supervision::restart_settings> restart_one{};
  /// Time limit for executing the program; with restart_one, for the rank's first line.
  nanoseconds start_deadline{30'000'000'000};
  /// With restart_one: how long a rank may send nothing after its first line.
  nanoseconds lost_after{10'000'000'000};
  /// How long after the first rank every other rank must know that their group has ended. Normally this takes less than a second.
  nanoseconds left_behind_after{2'000'000'000};
  /// The time between SIGTERM and SIGKILL: after a failure, and after the user's first signal.
  nanoseconds grace_after_failure{4'000'000'000};
  nanoseconds grace_after_stop{25'000'000'000};
  supervision::termination_settings ending{};
};

struct start_rank {
  std::uint32_t rank = 0;
  bool alone = false;  ///< the rank delivers its remaining batches without the group, which has finished
};
/// Send to the rank's process group. SIGKILL cancels the start of a rank that is still starting.
struct signal_rank {
  std::uint32_t rank = 0;
  int signal = 0;
};
/// The rank survives SIGKILL, and the group ends without it. For the log.
struct leave_behind {
  std::uint32_t rank = 0;
};
/// All ranks of this round are gone: kill processes that they left, then start the next round.
struct clear_round {};

using launch_command = std::variant<start_rank, signal_rank, leave_behind, clear_round>;

enum class launch_outcome : std::uint8_t { finished, stopped, failed };

/// The failure that ended a round. Later failures are consequences.
struct launch_cause {
  std::uint32_t rank = 0;
  pid_t pid = -1;    ///< -1: the process could not start
  std::string text;  ///< "exit code 3", "SIGSEGV"
};

/// An earlier process of a rank, which another process has replaced.
struct ended_process {
  pid_t pid = -1;               ///< -1: the process could not start
  std::string end;              ///< how the process ended, as text
  std::optional<int> code{};    ///< the process's exit code
  std::optional<int> signal{};  ///< else the signal that ended the process
  nanoseconds lived{};
};

struct rank_facts {
  enum class state : std::uint8_t { waiting, starting, running, gone };
  state now = state::waiting;
  pid_t pid = -1;               ///< pid of the last process
  std::uint32_t starts = 0;     ///< number of processes so far
  std::string end;              ///< how the last process ended, as text; empty: it is running
  std::optional<int> code{};    ///< exit code of the last process
  std::optional<int> signal{};  ///< or the signal that ended the last process
  steady_time began{};
  steady_time ended{};
  bool left_behind = false;  ///< the rank survived SIGKILL
  /// When the rank restarts alone; `never`: it does not.
  steady_time restarts_at = never;
  std::vector<ended_process> earlier{};  ///< the rank's last 64 earlier processes, oldest first
};

/// Whether the kernel's OOM killer explains a SIGKILL.
enum class oom_killer : std::uint8_t { did_it, did_not };

/// What launch_run reads about a running rank at each poll.
struct rank_sign {
  std::uint32_t rank = 0;
  bool traced = false;       ///< a debugger is attached: the rank's clocks are paused
  std::string wait_channel;  ///< the kernel function in which the rank's first thread waits; empty: unknown
};

/// "exit code 3", "SIGSEGV".
[[nodiscard]] std::string end_text(const process::exit_report& end);

/// Not thread-safe.
class launch_book {
 public:
  explicit launch_book(const launch_rules& rules);

  /// The commands to carry out now. Call after every event, at next_deadline(), and at least twice a second.
  [[nodiscard]] std::vector<launch_command> advance(steady_time now);
  /// When to call advance() without an event; `never`: not needed.
  [[nodiscard]] steady_time next_deadline() const noexcept;

  void started(std::uint32_t rank, pid_t pid);
  void start_failed(std::uint32_t rank, std::string why, steady_time now);
  void exited(std::uint32_t rank, const process::exit_report& end, steady_time now,
              oom_killer oom = oom_killer::did_not);
  /// Call when a line of this rank has arrived, with the number of batches that its process has delivered and the
  /// number of beats that its session has shown. A line with the same number of beats as before is no sign of life.
  void heard(std::uint32_t rank, std::uint64_t batches, std::uint64_t beats, steady_time now);
  /// Takes the state of all running ranks. `start`: what the rank that is
  /// now starting waits for. Call about once per tick().
  void look(steady_time now, const std::vector<rank_sign>& signs, const std::string& start);
  [[nodiscard]] nanoseconds tick() const noexcept;
  /// Call when this rank reports that its group has finished, or was stopped.
  void group_over(std::uint32_t rank, launch_outcome how, steady_time now);
  /// Call for the user's first and second signal. The first is passed on; the second kills.
  void stop(int signal, bool at_once, steady_time now);

  [[nodiscard]] bool over() const noexcept { return stage_ == stage::over; }
  /// Valid once over().
  [[nodiscard]] launch_outcome outcome() const noexcept { return outcome_; }
  [[nodiscard]] const std::optional<launch_cause>& first_cause() const noexcept { return cause_; }
  /// Restarts of all ranks together.
  [[nodiscard]] std::uint32_t rounds_restarted() const noexcept { return restarts_; }
  /// Restarts of all ranks together, plus restarts of single ranks.
  [[nodiscard]] std::uint32_t restarts() const noexcept { return restarts_ + single_restarts_; }
  [[nodiscard]] const std::vector<rank_facts>& ranks() const noexcept { return ranks_; }

 private:
  using rank_state = rank_facts::state;
  enum class stage : std::uint8_t { begin, running, ending, over };

  /// One rank's process, and the policy for its place.
  struct rank_life {
    supervision::restart_policy policy;
    supervision::termination ending;
    std::uint64_t batches = 0;
    std::uint64_t beats = 0;
    bool spoke = false;        // the rank's first line has arrived
    bool traced = false;       // a debugger was attached at the last poll
    bool knows_end = false;    // the rank knows that the group has ended, or need not know
    bool left_behind = false;  // the rank was killed because it looks for a group that has ended
  };

  void start_all(steady_time now);
  void start_one(std::uint32_t rank, steady_time now);
  void start_those_due(steady_time now);
  [[nodiscard]] bool looks_for_its_group(std::uint32_t rank) const;
  void kill_left_behind(steady_time now);
  /// Whether the rank is being ended because it hangs: it is then lost, whatever its exit code.
  [[nodiscard]] bool hung(std::uint32_t rank) const;
  /// Handles a process of a rank that did not end by its own decision.
  void lose(std::uint32_t rank, std::string how, const supervision::restart_decision& decided,
            steady_time now);
  void forget_restarts(steady_time now);
  void fail(std::uint32_t rank, pid_t pid, std::string text, steady_time now);
  void end_round(int signal, nanoseconds grace, steady_time now);
  void end_processes(steady_time now);
  void write_off(std::uint32_t rank, steady_time now);
  [[nodiscard]] bool lives(std::uint32_t rank) const;
  void settle_round(steady_time now);
  [[nodiscard]] bool all_gone() const;
  [[nodiscard]] bool restarts_single() const noexcept { return rules_.restart_one.has_value(); }

  launch_rules rules_;
  std::vector<rank_facts> ranks_;
  std::vector<rank_life> lives_;
  supervision::hang_detector hangs_;  // for ranks that can resume
  std::vector<launch_command> outbox_;
  stage stage_ = stage::begin;
  bool stopped_ = false;
  int ending_with_ = 0;                      // the signal that ends this round
  late_polls polls_;
  std::optional<launch_outcome> group_end_;  // how the group ended, as reported by a rank
  steady_time group_end_known_ = never;
  std::optional<launch_cause> cause_;
  std::uint32_t restarts_ = 0;
  std::uint32_t single_restarts_ = 0;
  launch_outcome outcome_ = launch_outcome::finished;
};

}  // namespace penstock::cli
