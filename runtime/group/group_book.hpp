// Membership, agreement and state of each rank of a group: the coordinator's book. Pure: no thread, no I/O,
// time is an argument. Reports come in as calls, orders go out of advance(). Lives in rank 0's process; a new
// process of rank 0 starts with an empty book and learns from the others' reports what was agreed.
//
//                 all ranks there,           all have described            a signal, or `stop`,
//                 settings equal             the same dataset              at any rank
//   gathering ------------------> describing ---------------> running ------------------> stopping
//       |                             |                         |  all streams over          |  all at the limit
//       +-----------------------------+-------------------------+----------------------------+------------> over
//                 a difference, a rank that does not arrive, fails, or is lost and not awaited
//
// Rules G1-G30. Messages may be lost, repeated, late or out of order (group_messages.hpp says why that does
// not matter).
//
// Losses. A rank is lost when its process is known to be gone, or when it has been silent for `lost_after`. A
// rank may hand out batches for `lost_after`, counted from when it sent the latest report that was answered
// (member_book.hpp). This right ends before the book can declare the rank lost for silence, so two processes
// of one rank never hand out at the same time.
//
// Two processes of one rank. A process that the launcher started later replaces the earlier one. Otherwise, the
// one with the later incarnation has the rank. If the incarnations do not decide, a process that still reports
// keeps its place, and the other waits until that process is lost. If both still report well after the second
// one arrived, and the group has not begun, the rank was started twice by mistake, and the group fails. If
// join_timeout passes first, the error names both processes as well as the missing rank.
//
// Takeover. A book that learns of an earlier coordinator takes the next generation as soon as all ranks have
// reported, or after `lost_after`, when no rank can still be handing out with the earlier coordinator's
// permission. It always waits for `lost_after` if a rank's process is new, or its right to hand out has lapsed:
// another process of that rank may still hand out batches. But if the launcher counts starts, or ends a rank's
// process before starting the next, there is no such process, and the book need not wait. If no survivor knows
// of an earlier coordinator, and the launcher does not count starts, the group starts over at once.
//
// A running_clock measures waiting: time during which this process did not run (rule G23) does not count as
// silence of the ranks. If the others meanwhile declared this process lost, this process
// itself is the first cause.
//
// Bounds. One place for each rank, one competitor for each place; advance() is O(ranks).
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/running_clock.hpp"
#include "runtime/group/group_messages.hpp"
#include "runtime/group/shared_communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::group {

struct group_settings {
  std::uint32_t world_size = 1;
  std::uint64_t process = 0;  ///< the coordinator's own process, which is rank 0's
  bool waits_for_lost = false;
  bool communicator = false;
  /// True: ranks take the steps of a stream together, so a rank that has finished is needed until all have
  /// finished. False: ranks leave at different times, and each reports that it has left.
  bool common_steps = true;
  nanoseconds join_timeout{120'000'000'000};
  nanoseconds lost_after{10'000'000'000};
  nanoseconds rejoin_timeout{600'000'000'000};
  nanoseconds end_grace{4'000'000'000};  ///< how long the outcome is sent to ranks that do not answer
  /// Orders are sent at least this often.
  [[nodiscard]] nanoseconds beat() const noexcept {
    return std::min<nanoseconds>(lost_after / 8, nanoseconds(1'000'000'000));
  }
  /// advance() is called at least this often.
  [[nodiscard]] nanoseconds look_every() const noexcept { return beat() / 2; }
};

// ---- commands ------------------------------------------------------------------------------------------------

/// Sent to the process with this number, over the link of its last report.
struct send_order {
  std::uint64_t process = 0;
  group_order order;
};

/// Create the id of a new communicator, and answer with communicator_id().
struct draw_communicator_id {
  std::uint64_t number = 0;
};

/// The reason for losing a rank whose process is known to be gone.
inline constexpr const char* process_has_ended = "its process has ended";

/// An event for the journal.
struct group_event {
  enum class kind : std::uint8_t {
    joined,
    lost,
    back,
    replaced,
    refused,
    established,
    going,
    stopping,
    over
  };
  kind what = kind::joined;
  std::uint32_t rank = 0;
  std::string text{};
  std::int32_t pid = 0;       ///< pid of the lost process
  bool has_ended = false;     ///< the rank is lost because its process is known to be gone
};

using group_command = std::variant<send_order, draw_communicator_id, group_event>;

/// Not thread-safe.
class group_book {
 public:
  group_book(group_settings settings, steady_time now);

  /// The commands to carry out now, in order. Call after every event and every beat.
  [[nodiscard]] std::vector<group_command> advance(steady_time now);

  /// A report from a peer that has the group's secret. Older reports of the same process are ignored.
  void heard(const member_report& report, steady_time now);
  /// This process has ended. A broken connection is not enough to call this.
  void gone(std::uint64_t process, const std::string& why, steady_time now);
  /// The process's link is closed; the process may connect again.
  void link_closed(std::uint64_t process);
  /// A debugger has stopped this process, so its silence does not mean a loss.
  void held(std::uint64_t process, steady_time now);
  /// A peer was refused, perhaps a missing rank. The error for a rank that does not arrive mentions it.
  void refused(std::string who) { refused_last_ = std::move(who); }
  /// The answer to draw_communicator_id. Ignored unless the number is that of the newest communicator.
  void communicator_id(std::uint64_t number, std::string id);

  [[nodiscard]] const group_view& view() const noexcept { return view_; }
  /// Ranks that have no process counted as a member, ascending.
  [[nodiscard]] std::vector<std::uint32_t> missing() const;
  /// How long this process has run (running_clock); as of the last event, or up to now.
  [[nodiscard]] steady_time ran() const noexcept { return clock_.ran(); }
  steady_time look(steady_time now) { return clock_.look(now); }
  /// Whether the coordinator may leave: every process that can learn how the group ended knows it, or
  /// had `end_grace` to hear it. If the group ended before all ranks had arrived, this includes
  /// ranks that arrive later.
  [[nodiscard]] bool may_leave() const noexcept { return may_leave_; }

 private:
  /// A process that claims a rank which another process has.
  struct competitor {
    member_report latest;
    steady_time since{};                        // when its first report arrived
    steady_time heard{};                        // when its last report arrived
    std::optional<steady_time> placed_heard{};  // when the process that has the rank next reported
  };
  struct place {
    std::optional<member_report> latest;  // the newest report of the process that has the rank, or had it last
    std::uint32_t incarnation = 0;        // 0: not a member yet
    bool present = false;
    bool ended =
        false;  // its process is certainly gone, or will never be admitted: reject its messages
    bool cleared = false;           // its dataset equals the group's
    bool knows_end = false;  // the process arrived after the group's end, and has heard how the group ended
    // An earlier process was replaced after the group's end, and may still ask how the group ended.
    bool earlier_may_live = false;
    steady_time heard{};
    nanoseconds stood_still{};  // clock_.stood_still() when `heard` was set
    bool link_closed = false;   // whether its link has closed since `heard`
    steady_time missing_since{};
    steady_time vacant_from{};  // until then, a process that lost its place while alive may still hand out batches
    std::string why_lost{};
    std::optional<competitor> other{};
    // The last order sent, to find changes that must be sent at once.
    group_order told{};
    steady_time told_at = never;
  };
  struct unknown_peer {
    std::uint64_t process = 0;
    std::uint64_t heard = 0;
    std::string refusal;  // empty: the process waits
  };

  // group_book.cpp: what events change.
  void take(place& s, const member_report& report, steady_time now);
  void update(place& s, const member_report& report, steady_time now);
  void claim(place& s, const member_report& report, steady_time now);
  void claim_after_end(place& s, const member_report& report, steady_time now);
  void take_word(place& s);
  void learn(const group_view& known);
  void learn_communicator(std::uint64_t number);
  [[nodiscard]] bool fits(const member_report& report, steady_time now);
  /// An empty reason means that the process must wait.
  void refuse(const member_report& report, std::string why);
  void lose(place& s, const std::string& why, steady_time now, bool has_ended = false);
  void fail(const member_report& whose, std::string cause);
  void end(group_outcome how, std::optional<group_cause> cause);
  void note(group_event::kind what, std::uint32_t rank, std::string text);
  [[nodiscard]] static std::string started_twice(const member_report& one, const member_report& other);

  // group_decisions.cpp: what advance() decides.
  void find_silent(steady_time now);
  [[nodiscard]] bool missed_by(const place& s) const;
  void let_competitors_in(steady_time now);
  void gather(steady_time now);
  void establish(steady_time now);
  void compare_datasets();
  void await_lost(steady_time now);
  void watch_the_end();
  void freeze();
  void tend_communicator();
  [[nodiscard]] bool is_through(const place& s) const;
  void write_orders(steady_time now);
  [[nodiscard]] group_order order_for(const place& s) const;
  [[nodiscard]] bool everybody_knows() const;
  [[nodiscard]] bool over() const noexcept { return view_.outcome != group_outcome::none; }
  [[nodiscard]] bool begun() const noexcept { return view_.facts.has_value(); }
  [[nodiscard]] bool takes_over() const noexcept { return generation_known_ > 0; }
  [[nodiscard]] std::uint32_t rank_of(const place& s) const {
    return static_cast<std::uint32_t>(&s - places_.data());
  }

  group_settings settings_;
  running_clock clock_;
  steady_time since_;  // when this coordinator started; all times here are on clock_
  group_view view_;
  std::vector<place> places_;  // by rank
  std::vector<unknown_peer> unknown_peers_;
  std::uint64_t generation_known_ = 0;  // the highest generation of any earlier coordinator
  bool established_ = false;
  bool stop_wanted_ = false;
  shared_communicator communicator_;
  std::uint64_t orders_ = 0;
  std::optional<steady_time> over_since_;
  bool may_leave_ = false;
  std::string refused_last_;
  std::vector<group_command> outbox_;
};

}  // namespace penstock::group
