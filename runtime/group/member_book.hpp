// One rank's side of a group: whether the rank may hand out batches, when it freezes, makes or aborts its
// communicator, and ends. Pure: no thread, no I/O, time is an argument. Orders come in as calls, reports go
// out of advance(). The other side is group_book.
//
// A rank may hand out batches for `lost_after` after it sent its last answered report. The coordinator
// declares a rank lost only after the same time of silence, so a rank that is cut off stops before its
// replacement starts. The rank continues when it is connected again, unless it has been replaced.
//
// The right to hand out expires by the real clock, whether or not this process ran. A running_clock measures
// silence: a rank that did not run (rule G23) does not blame the others for this silence, and blames itself
// if the others have continued without it.
//
// A rank that gives up sends the reason in its last report, so that the others report the same cause.
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
  bool needs_others = false;  ///< whether its work needs other ranks, even without a communicator
  nanoseconds join_timeout{120'000'000'000};
  nanoseconds lost_after{10'000'000'000};
  nanoseconds rejoin_timeout{600'000'000'000};
  nanoseconds end_grace{5'000'000'000};  ///< how long it stays for ranks that do not know the outcome yet
  [[nodiscard]] nanoseconds beat() const noexcept {
    return std::min<nanoseconds>(lost_after / 8, nanoseconds(1'000'000'000));
  }
  /// advance() is called at least this often.
  [[nodiscard]] nanoseconds look_every() const noexcept { return beat() / 2; }
};

// ---- commands ------------------------------------------------------------------------------------------------

struct send_report {
  member_report report;
};
/// Make the communicator. Answer with communicator_made() or communicator_broken().
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
  std::optional<group_cause> cause{};  ///< only after a failure
};

using member_command = std::variant<send_report, make_communicator, abort_communicator, end_rank>;

/// The current right to hand out batches.
struct hand_out_right {
  steady_time until{};                   ///< when the right ends, unless it is extended
  std::optional<std::uint64_t> limit{};  ///< the step at which it ends, counted like `steps`
  bool operator==(const hand_out_right&) const = default;
};

/// Not thread-safe.
class member_book {
 public:
  /// `steps`: delivered by earlier incarnations of this rank, counted from the stream's beginning.
  member_book(member_settings settings, std::uint64_t steps, steady_time now);

  /// The commands to carry out now, in order. Call after every event and every beat.
  [[nodiscard]] std::vector<member_command> advance(steady_time now);

  /// An order from a peer that has the group's secret and listens at its address. Late orders are ignored.
  void heard(const group_order& order, steady_time now);
  /// The coordinator's process has ended. A broken connection is not enough to call this.
  void coordinator_gone(const std::string& why);
  /// A debugger has stopped the coordinator's process, so its silence does not mean a loss.
  void coordinator_held(steady_time now);

  void link_made();
  /// The link is gone. Makes a new report, so that the one sent over the next link is up to date. `closed`:
  /// the coordinator's side closed the link.
  void link_lost(std::string why, bool closed);
  /// Why rank 0's own coordinator cannot listen. An empty text: it can.
  void cannot_listen(std::string why);
  /// Rank 0's own coordinator has refused a peer, which may be a missing rank or this one.
  void peer_refused(std::string who);
  /// The attachments of reports have changed.
  void report_again();

  void described(stream_facts facts);
  /// A batch was handed out. `steps`: running total.
  void delivered(std::uint64_t steps);
  void stream_ended();
  /// A signal or an operator asks the whole group to stop at a common step.
  void want_stop();
  /// This rank ends alone, independently of the others.
  void leave();
  /// This rank cannot continue. Ends the group.
  void fail(std::string why);

  /// This process's stream starts after this step, because earlier processes acknowledged everything before it.
  void begins_at(std::uint64_t step);
  /// The program has snapshots of its state at these steps, ascending; at most held_max.
  void held(std::vector<std::uint64_t> steps);

  void communicator_made(std::uint64_t number);
  void communicator_broken(std::uint64_t number, std::string cause);
  void communicator_aborted(std::uint64_t number);

  /// Whether the next batch may be handed out now. Query before each.
  [[nodiscard]] bool may_hand_out(steady_time now) const;
  /// Like may_hand_out(), for a caller that decides later and
  /// counts the batches itself. Empty if nothing may be handed out.
  [[nodiscard]] std::optional<hand_out_right> right() const;
  /// Whether all ranks have arrived and agree, and this process is one of them.
  [[nodiscard]] bool is_in() const noexcept { return told_.go && view_.outcome == group_outcome::none; }
  /// Whether all ranks have made the communicator, so that it may be used.
  [[nodiscard]] bool may_communicate() const noexcept;
  /// The group has finished, but this process has not: its launcher restarted it after the last batch of an
  /// earlier process, at the position that process had last reported. It delivers the rest alone, then ends.
  [[nodiscard]] bool delivers_the_rest() const noexcept;
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] bool stream_over() const noexcept { return said_.stream_over; }
  [[nodiscard]] bool failed() const noexcept { return said_.failed.has_value(); }
  /// How long this process has run (running_clock); as of the last event, or up to now.
  [[nodiscard]] steady_time ran() const noexcept { return clock_.ran(); }
  steady_time look(steady_time now) { return clock_.look(now); }
  [[nodiscard]] const group_view& view() const noexcept { return view_; }
  [[nodiscard]] std::uint32_t incarnation() const noexcept { return said_.incarnation; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return said_.steps; }

 private:
  struct sent_report {
    std::uint64_t number = 0;
    steady_time at{};
    nanoseconds stood_still{};  // clock_.stood_still() when the report was sent
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
  steady_time since_;  // the times that measure waiting are on clock_
  group_view view_;
  member_report said_;            // the next report
  bool changed_ = true;           // whether something has changed since the last report
  std::deque<sent_report> sent_;  // unanswered reports; at most those of the last `lost_after`
  std::optional<steady_time> sent_at_;
  std::optional<steady_time> heard_at_;
  nanoseconds stood_still_answered_{0};  // clock_.stood_still() when the last answered report was sent
  steady_time may_until_{};              // until when this rank may hand out batches, in real time
  struct {
    std::uint64_t number = 0;  // number of the current coordinator's last order
    communicator_order communicator;
    bool go = false;
    bool counted = false;  // whether this process has the rank
  } told_;
  bool everybody_knows_ = false;
  std::optional<steady_time> knows_since_;  // since when it knows the outcome
  group_cause rank_0_;                      // host and pid of rank 0's coordinator, for messages
  struct {
    std::string no_link;       // why there is no link
    bool closed = false;       // the other side closed the last link
    std::string no_address;    // why rank 0's coordinator has no address
    std::string refused_last;  // the peer that rank 0's coordinator refused last
  } link_;
  std::optional<steady_time> failing_since_;
  std::optional<group_cause> own_end_;  // an end that needs no confirmation
  bool ended_ = false;
  std::vector<member_command> outbox_;
};

}  // namespace penstock::group
