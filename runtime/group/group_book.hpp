// Who is in a group of ranks, what they have agreed on, what has become of each: the coordinator's book. Pure: no
// thread, no I/O, time is an argument. Reports come in as calls, orders go out of advance(). Lives in rank 0's process;
// a new process of rank 0 begins with an empty book and learns what was agreed from the reports of the others.
//
//                 all ranks there,           all have described            a signal, or `stop`,
//                 settings equal             the same dataset              at any rank
//   gathering ------------------> describing ---------------> running ------------------> stopping
//       |                             |                         |  all streams over          |  all at the limit
//       +-----------------------------+-------------------------+----------------------------+------------> over
//                 a difference, a rank that does not arrive, fails, or is lost and not awaited
//
// Rules G1-G30. Messages may be lost, come twice, late or out of order (group_messages.hpp says why that is
// no matter).
//
// Losses. A rank is lost when its process is known to be gone, or when nothing was heard of it for `lost_after`. It may
// hand out batches only until `lost_after` after it sent the last report that was answered (member_book.hpp): earlier
// than the book can declare it lost by its silence. So there are never two processes of one rank that hand out.
//
// Two processes of one rank. One that its launcher has started later replaces the other; among equals an incarnation
// that the group knows replaces none, and one that is heard keeps its place. The other waits until it is lost. Two
// that were both heard well after the second came, in a group that has not begun, are a mistake in the launch. Where the
// time to arrive is over before that, both are named with the rank that is missing.
//
// Taking over. A book that hears of an earlier coordinator takes the next generation as soon as all ranks have
// reported, or after `lost_after`, when no rank can still be handing out by the word of the one before. A new process
// beside survivors waits for that as well, and so does a survivor whose right to hand out has lapsed, unless its launcher counts
// starts or ends a process of a rank before it starts the next: then there is no other process. Where nobody is left who knows of
// an earlier coordinator, and the launcher does not count, the group begins anew at once.
//
// Waiting is measured by a running_clock: while this process stood still (rule G23) it heard nobody, which is no silence
// of theirs. If the others have taken it for lost meanwhile, it is the first cause itself.
//
// Bounds. One place for each rank, one competitor for each place; advance() is O(ranks).
#pragma once

#include "runtime/base/clock.hpp"
#include "runtime/base/running_clock.hpp"
#include "runtime/group/group_messages.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace penstock::group {

struct group_settings {
  std::uint32_t world_size = 1;
  std::uint64_t process = 0;  ///< the coordinator's own: rank 0's
  bool waits_for_lost = false;
  bool communicator = false;
  /// Ranks take the steps of a stream together: one that has finished is needed until all have. False: they say by
  /// themselves when they have left.
  bool common_steps = true;
  nanoseconds join_timeout{120'000'000'000};
  nanoseconds lost_after{10'000'000'000};
  nanoseconds rejoin_timeout{600'000'000'000};
  nanoseconds end_grace{4'000'000'000};  ///< how long the end is told to ranks that do not answer
  /// Orders are sent at least so often.
  [[nodiscard]] nanoseconds beat() const noexcept {
    return std::min<nanoseconds>(lost_after / 8, nanoseconds(1'000'000'000));
  }
  /// How often advance() is called, at least.
  [[nodiscard]] nanoseconds look_every() const noexcept { return beat() / 2; }
};

// ---- commands ------------------------------------------------------------------------------------------------

/// To the process with this number, over the link that it reported on last.
struct send_order {
  std::uint64_t process = 0;
  group_order order;
};

/// Make the id of a new communicator, and answer with communicator_id().
struct draw_communicator_id {
  std::uint64_t number = 0;
};

/// For the journal.
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
};

using group_command = std::variant<send_order, draw_communicator_id, group_event>;

/// Not thread-safe.
class group_book {
 public:
  group_book(group_settings settings, steady_time now);

  /// What is to be done now, in order. Call after every event and every beat.
  [[nodiscard]] std::vector<group_command> advance(steady_time now);

  /// A report from whoever has the group's secret. Older ones of the same process are ignored.
  void heard(const member_report& report, steady_time now);
  /// This process has ended; a connection that broke is no proof of that.
  void gone(std::uint64_t process, const std::string& why, steady_time now);
  /// It has no link any more; it may make another one.
  void link_closed(std::uint64_t process);
  /// A debugger holds this process: its silence is no sign of a loss.
  void held(std::uint64_t process, steady_time now);
  /// Somebody was not let in, perhaps a rank that is missed: said where a rank does not arrive.
  void refused(std::string who) { refused_last_ = std::move(who); }
  /// The answer to draw_communicator_id; of another number than the last it is ignored.
  void communicator_id(std::uint64_t number, std::string id);

  [[nodiscard]] const group_view& view() const noexcept { return view_; }
  /// Ranks without a process that counts, ascending.
  [[nodiscard]] std::vector<std::uint32_t> missing() const;
  /// The time in which this process ran (running_clock); as of the last event, or up to now.
  [[nodiscard]] steady_time ran() const noexcept { return clock_.ran(); }
  steady_time look(steady_time now) { return clock_.look(now); }
  /// All that can know how the group ended know it, or had `end_grace` to hear it: the coordinator may go. If it ended
  /// before all had arrived, those that arrive later are among them.
  [[nodiscard]] bool may_leave() const noexcept { return may_leave_; }

 private:
  /// A process that claims a rank beside the one that has it.
  struct competitor {
    member_report latest;
    steady_time since{};                        // it was heard first
    steady_time heard{};                        // and last
    std::optional<steady_time> placed_heard{};  // the first word since then of the one that has the rank
  };
  struct place {
    std::optional<member_report> latest;  // of the process that has it, or had it last
    std::uint32_t incarnation = 0;        // 0: not counted yet
    bool present = false;
    bool ended =
        false;  // its process is gone for certain, or will never be let in: late words are no sign of life
    bool cleared = false;           // its dataset is the group's
    bool knows_end = false;         // it arrived when the group was over, and has heard how it ended
    bool earlier_may_live = false;  // it was replaced when the group was over, and may come to hear how
    steady_time heard{};
    nanoseconds stood_still{};  // this process, by then
    bool link_closed = false;   // since then
    steady_time missing_since{};
    steady_time vacant_from{};  // until then a process that lost its place alive may hand out
    std::string why_lost{};
    std::optional<competitor> other{};
    // What it was told last, to say at once what is new.
    group_order told{};
    steady_time told_at = never;
  };
  struct unknown_peer {
    std::uint64_t process = 0;
    std::uint64_t heard = 0;
    std::string refusal;  // empty: it waits
  };
  enum class making : std::uint8_t { idle, drawing, making, ready, aborting };

  // group_book.cpp: what events change.
  void take(place& s, const member_report& report, steady_time now);
  void update(place& s, const member_report& report, steady_time now);
  void claim(place& s, const member_report& report, steady_time now);
  void claim_after_end(place& s, const member_report& report, steady_time now);
  void take_word(place& s);
  void learn(const group_view& known);
  void learn_communicator(std::uint64_t number);
  [[nodiscard]] bool fits(const member_report& report, steady_time now);
  /// Without a reason: it has to wait.
  void refuse(const member_report& report, std::string why);
  void lose(place& s, const std::string& why, steady_time now);
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
  [[nodiscard]] std::uint64_t first_communicator() const;
  void break_communicator();
  void agree_on_snapshot();
  void write_orders(steady_time now);
  [[nodiscard]] group_order order_for(const place& s) const;
  [[nodiscard]] communicator_order communicator_for() const;
  [[nodiscard]] bool everybody_knows() const;
  [[nodiscard]] bool over() const noexcept { return view_.outcome != group_outcome::none; }
  [[nodiscard]] bool begun() const noexcept { return view_.facts.has_value(); }
  [[nodiscard]] bool takes_over() const noexcept { return generation_known_ > 0; }
  [[nodiscard]] std::uint32_t rank_of(const place& s) const {
    return static_cast<std::uint32_t>(&s - places_.data());
  }

  group_settings settings_;
  running_clock clock_;
  steady_time since_;  // when this coordinator began; this and all other times are the clock's
  group_view view_;
  std::vector<place> places_;  // by rank
  std::vector<unknown_peer> unknown_peers_;
  std::uint64_t generation_known_ = 0;  // the highest of any earlier coordinator
  bool established_ = false;
  bool stop_wanted_ = false;
  making making_ = making::idle;
  std::string communicator_id_;
  std::uint64_t orders_ = 0;
  std::optional<steady_time> over_since_;
  bool may_leave_ = false;
  std::string refused_last_;
  std::vector<group_command> outbox_;
};

}  // namespace penstock::group
