// What one rank of a group does about it: whether it may hand out batches, when it freezes, makes or aborts its
// communicator, and ends. Pure: no thread, no I/O, time is an argument. Orders come in as calls, reports go out of
// advance(). The other side is group_book.
//
// A rank may hand out while the coordinator has answered a report that was sent less than `lost_after` ago. The
// coordinator takes a rank for lost only when it has heard nothing for as long, so a rank that is cut off stops before
// its replacement begins. It goes on when it is connected again, if it has not been replaced by then.
//
// The right to hand out ends by the real clock, whatever this process did meanwhile. How long nothing was heard is measured
// by a running_clock: a rank that stood still (rule G23) blames nobody for what it could not hear, and names itself if
// the others have gone on without it.
//
// A rank that gives up says why in its last report, so that the others report the same cause.
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/running_clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::group {

struct member_settings {
  rank_card card;
  bool waits_for_lost = false;
  bool communicator = false;
  bool needs_others = false;  ///< for what it does, also without a communicator
  nanoseconds join_timeout{120'000'000'000};
  nanoseconds lost_after{10'000'000'000};
  nanoseconds rejoin_timeout{600'000'000'000};
  nanoseconds end_grace{5'000'000'000};  ///< how long it stays for others that do not know the end yet
  [[nodiscard]] nanoseconds beat() const noexcept {
    return std::min<nanoseconds>(lost_after / 8, nanoseconds(1'000'000'000));
  }
  /// How often advance() is called, at least.
  [[nodiscard]] nanoseconds look_every() const noexcept { return beat() / 2; }
};

// ---- commands ------------------------------------------------------------------------------------------------

struct send_report {
  member_report report;
};
/// Answer with communicator_made() or communicator_broken().
struct make_communicator {
  std::uint64_t number = 0;
  std::string id;
};
/// Refuse new scopes, wait for open ones, and answer with communicator_aborted().
struct abort_communicator {
  std::uint64_t number = 0;
};
/// The last command: this rank ends.
struct end_rank {
  group_outcome how = group_outcome::none;
  std::optional<group_cause> cause{};  ///< of a failure
};

using member_command = std::variant<send_report, make_communicator, abort_communicator, end_rank>;

/// The right to hand out batches, as it stands.
struct hand_out_right {
  steady_time until{};                   ///< unless it is prolonged
  std::optional<std::uint64_t> limit{};  ///< so many in all, counted as `steps`
  bool operator==(const hand_out_right&) const = default;
};

/// Not thread-safe.
class member_book {
 public:
  /// `steps`: delivered by earlier incarnations of this rank, counted from the stream's beginning.
  member_book(member_settings settings, std::uint64_t steps, steady_time now);

  /// What is to be done now, in order. Call after every event and every beat.
  [[nodiscard]] std::vector<member_command> advance(steady_time now);

  /// From whoever has the group's secret and listens at its address. Late ones are ignored.
  void heard(const group_order& order, steady_time now);
  /// The coordinator's process has ended; a connection that broke is no proof of that.
  void coordinator_gone(const std::string& why);
  /// A debugger holds the coordinator's process: its silence is no sign of a loss.
  void coordinator_held(steady_time now);

  void link_made();
  /// What waits to be sent over the next one has to be up to date. `closed`: the coordinator's side has ended it.
  void link_lost(std::string why, bool closed);
  /// Rank 0's own coordinator cannot listen; empty: it can.
  void cannot_listen(std::string why);
  /// What travels with the reports has changed.
  void report_again();

  void described(stream_facts facts);
  /// A batch was handed out: so many in all.
  void delivered(std::uint64_t steps);
  void stream_ended();
  /// A signal, or an operator: the whole group is to stop at a common step.
  void want_stop();
  /// This rank alone ends, whatever the others do.
  void leave();
  /// This rank cannot go on; ends the group.
  void fail(std::string why);

  /// The stream begins behind this step for this process: what lies before it was acknowledged by an earlier one.
  void begins_at(std::uint64_t step);
  /// The program's state was kept at these steps, ascending; at most held_max.
  void held(std::vector<std::uint64_t> steps);

  void communicator_made(std::uint64_t number);
  void communicator_broken(std::uint64_t number, std::string cause);
  void communicator_aborted(std::uint64_t number);

  /// Whether the next batch may be handed out now. Ask before each.
  [[nodiscard]] bool may_hand_out(steady_time now) const;
  /// The same for somebody who asks later and counts the batches himself. None: he may not.
  [[nodiscard]] std::optional<hand_out_right> right() const;
  /// All ranks are there and agree, and this process is one of them.
  [[nodiscard]] bool is_in() const noexcept { return told_.go && view_.outcome == group_outcome::none; }
  /// The communicator may be used: all ranks have made it.
  [[nodiscard]] bool may_communicate() const noexcept;
  /// The group has finished, and this process has not: its launcher has started it again after the last batch of an
  /// earlier process, and where that one was last heard of. It delivers what follows by itself, and then ends.
  [[nodiscard]] bool delivers_the_rest() const noexcept;
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool stream_over() const noexcept { return said_.stream_over; }
  [[nodiscard]] bool failed() const noexcept { return said_.failed.has_value(); }
  /// The time in which this process ran (running_clock); as of the last event, or up to now.
  [[nodiscard]] steady_time ran() const noexcept { return clock_.ran(); }
  steady_time look(steady_time now) { return clock_.look(now); }
  [[nodiscard]] const group_view& view() const noexcept { return view_; }
  [[nodiscard]] std::uint32_t incarnation() const noexcept { return said_.incarnation; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return said_.steps; }

 private:
  struct sent_report {
    std::uint64_t number = 0;
    steady_time at{};
    nanoseconds stood_still{};  // by then
  };

  void follow(const group_order& order);
  void note_coordinator(const group_order& order);
  void prolong(std::uint64_t answered);
  void tend_communicator();
  void send(steady_time now);
  [[nodiscard]] std::optional<end_rank> find_end();
  [[nodiscard]] end_rank give_up(group_cause cause);
  [[nodiscard]] bool was_missed() const;
  [[nodiscard]] group_cause mine(std::string cause) const;
  [[nodiscard]] group_cause of_rank_0(std::string cause) const;
  [[nodiscard]] group_cause unreachable() const;

  member_settings settings_;
  running_clock clock_;
  steady_time since_;  // this and other times of waiting are the clock's
  group_view view_;
  member_report said_;            // the next report
  bool changed_ = true;           // since the last one was sent
  std::deque<sent_report> sent_;  // not answered; at most those of `lost_after`
  std::optional<steady_time> sent_at_;
  std::optional<steady_time> heard_at_;
  nanoseconds stood_still_answered_{0};  // when the last report that was answered had been sent
  steady_time may_until_{};              // hand out; real time
  /// Of the newest order.
  struct {
    std::uint64_t number = 0;  // of this coordinator's
    communicator_order communicator;
    bool go = false;
    bool counted = false;  // this process has the rank
  } told_;
  bool everybody_knows_ = false;
  std::optional<steady_time> knows_since_;  // the outcome
  group_cause rank_0_;                      // as its coordinator says; without a cause
  std::string no_link_;                     // why there is none
  bool link_closed_ = false;                // the last one, by the other side
  std::string no_address_;                  // why rank 0's coordinator has none
  std::optional<steady_time> failing_since_;
  std::optional<group_cause> own_end_;  // that nobody has to confirm
  bool ended_ = false;
  std::vector<member_command> outbox_;
};

}  // namespace penstock::group
