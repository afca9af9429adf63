// One rank of a group, between its links and its adapter. It has the member's book, and knows the state of the
// link and when this rank may leave. Pure: events and the time come in, commands come out of advance(). It has two
// adapters: the member actor of a session (actors/group/member) and program_group.
//
// Report facts about the session or program to book(); report events of the link to the
// driver, and call its leave().
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/group/link_news.hpp"
#include "runtime/group/member_book.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::group {

/// "rank 3", "ranks 1, 2"
[[nodiscard]] std::string ranks_text(const std::vector<std::uint32_t>& ranks);

struct rank_setup {
  member_settings member;
  std::string where;  ///< the group's address, for messages
  /// The group fails after this many communicators in a row that could not be made; 0: after none.
  std::uint32_t fruitless_communicators_max = 0;
};

/// Not thread-safe.
class rank_driver {
 public:
  /// Long enough for the last report to be sent.
  static constexpr nanoseconds linger = std::chrono::milliseconds(100);
  /// How long a leaving rank waits for the answer to its last report, if no other rank needs it.
  static constexpr nanoseconds patience_with_answer = std::chrono::seconds(2);

  rank_driver(rank_setup setup, std::uint64_t steps, steady_time now);

  [[nodiscard]] member_book& book() noexcept { return book_; }
  [[nodiscard]] const member_book& book() const noexcept { return book_; }

  /// The commands to carry out now, in order. Call after every event and at least every
  /// member_settings::look_every(), when linger or patience_with_answer has passed since leave(), and when
  /// linger has passed since an end_rank.
  [[nodiscard]] std::vector<member_command> advance(steady_time now);

  // ---- from the links

  void link_made();
  void link_lost(link_trouble trouble);
  void heard(const group_order& order, steady_time now);
  /// Why rank 0's own coordinator cannot listen. An empty text: it can.
  void cannot_listen(const std::string& why);
  /// Rank 0's own coordinator has refused a peer.
  void peer_refused(const std::string& who);
  /// The links cannot be made with these settings: this rank ends without informing the others.
  void refuse(failure why);

  // ---- from the session or program

  /// The state of this rank's communicator.
  void communicator_changed(const communicator_state& state);
  /// The session or program closes. The driver still sends what the others must know.
  void leave(steady_time now);
  /// Stops the group at a common step, or this rank alone if there is no coordinator to agree with.
  void stop();

  // ---- current state

  /// After leave(): whether no other process needs this one any more.
  [[nodiscard]] bool may_go() const noexcept { return may_go_; }
  /// Whether all ranks have arrived and agree, or all others have finished and this rank delivers the rest.
  [[nodiscard]] bool joined() const noexcept { return joined_; }
  [[nodiscard]] const std::optional<end_rank>& end() const noexcept { return end_; }
  [[nodiscard]] const std::optional<failure>& refusal() const noexcept { return refusal_; }
  /// Ranks that are missing, according to the newest order.
  [[nodiscard]] const std::vector<std::uint32_t>& lost() const noexcept { return heard_.lost; }
  /// What this rank waits for. Empty if it is not waiting.
  [[nodiscard]] std::string waits_for(bool hands_out) const;

 private:
  [[nodiscard]] bool find_out_whether_it_may_go() const;
  void give_up_communicator();

  rank_setup setup_;
  member_book book_;
  group_order heard_;  // the newest
  bool linked_ = false;
  std::string trouble_;  // why there is no link
  std::optional<std::uint64_t>
      last_word_;  // number of the first report that announced that everything is delivered
  bool joined_ = false;
  bool may_go_ = false;
  std::optional<failure> refusal_;
  std::optional<end_rank> end_;
  // Times on the book's clock.
  steady_time ended_at_{};
  std::optional<steady_time> leaving_since_;
  std::uint64_t made_ = 0;       // the last communicator that this rank had
  std::uint32_t fruitless_ = 0;  // how many communicators since made_ could not be made
};

}  // namespace penstock::group
