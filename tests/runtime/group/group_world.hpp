// A world for the drivers of a group and their books: processes that launchers start and kill, and that are suspended and resumed; links
// that lose, delay and repeat messages; clocks; streams and communicators. The world knows independently what is allowed, and throws a
// violation when the drivers do otherwise. Used by group_model_test.cpp.
#pragma once

#include "runtime/group/coordinator_driver.hpp"
#include "runtime/group/rank_driver.hpp"
#include "tests/runtime/schedule/random_scripts.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock::testing {

// clang-format off
enum class group_act : std::uint8_t { pass, hand_over, deliver, exchange, nccl, start,  // work; the others are accidents
                                      lose, repeat, late, kill, kill_whole, cut, heal, stop, break_nccl, leave, fail, twin, wait,
                                      pause_one, pause_all, count };
inline constexpr const char* group_act_names[] = {"pass", "hand_over", "deliver", "exchange", "nccl", "start", "lose", "repeat", "late",
                                                  "kill", "kill_whole", "cut", "heal", "stop", "break_nccl", "leave", "fail", "twin", "wait",
                                                  "pause_one", "pause_all"};
// clang-format on
static_assert(std::size(group_act_names) == static_cast<std::size_t>(group_act::count));

struct group_world_settings {
  std::uint32_t ranks = 2;
  std::uint64_t batches = 20;  ///< in the stream
  bool waits = true;
  bool communicator = false;
  bool counts_starts = true;           ///< the launcher says how often it has started a rank
  bool deaths_seen = true;             ///< a link reports at once that the process at its other end is gone
  bool launcher_hears_end = false;     ///< as `penstock launch` does; others only see processes exit
  std::optional<std::uint32_t> odd{};  ///< this rank has a different seed
  std::optional<std::uint32_t> odd_data{};
  bool goes_on_when_cut_off = false;  ///< a planted bug: ranks hand out without asking for permission
};

/// Coverage: how often each situation occurred, over all scripts.
struct group_world_tally {
  std::map<group::group_outcome, std::uint64_t> outcomes;
  std::uint64_t replaced = 0, takeovers = 0, back = 0, cut_off = 0, communicators = 0, aborts = 0,
                refused = 0, stops = 0, twins = 0, pauses = 0, blamed_for_pauses = 0;
};

class group_world {
 public:
  group_world(const group_world_settings& settings, group_world_tally& tally);
  void perform(step<group_act> s);
  /// No more faults: from now on the group must end within a bounded time.
  void finish();

 private:
  struct process {
    std::uint64_t token = 0;
    std::uint32_t rank = 0;
    std::unique_ptr<group::rank_driver> driver{};
    std::unique_ptr<group::coordinator_driver> coordinator{};  // in rank 0
    steady_time started{};
    steady_time stands_still_until{};
    /// Messages that arrived meanwhile. Empty: the link has closed, together with the process at its other end.
    std::deque<std::pair<group::link_id, std::optional<group::member_report>>> reports{};
    std::deque<std::optional<group::group_order>> orders{};
    [[nodiscard]] group::member_book& book() const { return driver->book(); }
    std::optional<group::end_rank> end{};
    bool cut_up = false;          // no message reaches the coordinator
    bool cut_down = false;        // no message arrives from the coordinator
    std::uint64_t let_in_by = 0;  // the last coordinator that accepted the process
    // For a coordinator: the newest group of earlier coordinators, according to the reports that it has received.
    std::uint64_t known_generation = 0;
    std::uint64_t known_group = 0;
    steady_time up_since{};    // when the oldest report in transit from the process was sent, or earlier
    steady_time down_since{};  // when the oldest order in transit to the process was sent, or earlier
    bool described = false;
    bool handed_out = false;
    std::deque<group::member_report> up{};
    std::deque<group::group_order> down{};
    std::deque<group::group_order> old_orders{};  // orders delivered before, which may arrive again
    std::uint64_t made = 0;                       // the communicator that the process has
    std::string made_id{};
    std::optional<group::make_communicator> to_make{};
    std::optional<std::uint64_t> to_abort{};
  };
  struct launched_rank {
    std::uint32_t starts = 0;
    std::uint64_t steps = 0;      // the rank's position as its launcher knows it
    std::uint64_t delivered = 0;  // batches delivered by any process of the rank
    bool over = false;            // the rank ended by itself, and does not restart
    bool stop_disturbed = false;
    bool twins = false;  // the rank had two processes at once
    steady_time away_since = never;
  };

  [[nodiscard]] bool starts_again(std::uint32_t rank);
  [[nodiscard]] bool launcher_settles_the_end() const;
  process& start(std::uint32_t rank);
  void kill(process& p, bool loses_words);
  void kill_whole(std::uint32_t pick);
  void finish_alone(std::uint32_t rank);
  void end_those_left_behind();
  void twin(std::uint32_t rank);
  void advance();
  void wake(process& p);
  void tell_coordinator(group::link_id link, std::optional<group::member_report> report);
  void tell_rank(process& p, std::optional<group::group_order> order);
  [[nodiscard]] bool stands_still(const process& p) const { return now_ < p.stands_still_until; }
  void pause_one(process& p, nanoseconds time);
  void pause_all(std::uint32_t pick);
  void exits(process& p);
  void advance_coordinator(process& p);
  void advance_member(process& p);
  void hear(process& coordinator, group::link_id link, const group::member_report& report);
  [[nodiscard]] bool former(const process& p) const;
  void carry_up(process& p, bool again);
  void carry_down(process& p, bool again);
  void hand_over(process& p);
  void do_nccl(process& p);
  void remove_ended();
  void ended(process& p);
  void check();
  void pass(nanoseconds time);
  void exchange();
  void accident(group_act what, std::uint32_t pick);
  [[nodiscard]] process* newest(std::uint32_t rank);
  [[nodiscard]] process* coordinator();
  [[nodiscard]] process* any(std::uint32_t pick);
  [[nodiscard]] bool hands_out(const process& p) const;
  void check_the_end() const;

  group_world_settings settings_;
  group_world_tally& tally_;
  steady_time now_{std::chrono::hours(1)};
  std::vector<std::unique_ptr<process>> alive_;  // in the order of their starts
  std::vector<launched_rank> ranks_;
  std::vector<group::end_rank> ends_;                       // as reported by the group
  std::vector<group::member_report> last_words_;            // final reports of the dead
  std::map<std::string, std::set<std::uint32_t>> made_by_;  // the ranks that made each communicator, by its id
  steady_time exchanged_{};                                 // when all messages were last delivered
  steady_time decided_at_ = never;  // when a coordinator first knew how the group ended
  steady_time told_at_ = never;     // when a rank that ended first reported that
  group::group_outcome told_ = group::group_outcome::none;
  // If no reachable process knew of a group, the next coordinator starts another one.
  std::map<std::uint64_t, std::uint64_t> group_of_;  // by the coordinator's token
  std::uint64_t group_ = 0;                          // the most recently established one
  std::uint64_t tokens_ = 0;
  std::uint64_t draws_ = 0;
  std::uint64_t coordinators_ = 0;
  bool stopped_ = false;
  bool left_ = false;
  steady_time paused_at_{};         // all ranks
  std::set<std::uint32_t> paused_;  // ranks suspended for so long that silence counts as a loss
  bool may_fail_ = false;           // another event happened that a group need not survive
  bool may_differ_ = false;         // an event happened that keeps ranks from learning the same end
};

}  // namespace penstock::testing
