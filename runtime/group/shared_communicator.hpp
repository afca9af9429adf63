// Which communicator the ranks of a group share, and which step they have agreed on: a decision of the coordinator's book.
// Pure; used by group_book, once the group has begun.
//
//           all ranks are there         its id is created        all have made it
//   idle --------------------> drawing -----------------> making ----------------> ready
//    ^                            |                          |                       |
//    |  no rank has a part of it  |                          | a loss, or a rank gives up
//    +----------------------- aborting <--------------------+-----------------------+
//
// The communicator's number is in the view, because orders of earlier coordinators change this number, too.
#pragma once

#include "runtime/group/group_messages.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace penstock::group {

class shared_communicator {
 public:
  struct rank {
    const member_report* latest = nullptr;
    bool present = false;
    bool in_hand = false;   ///< whether it is present and has the group's dataset
    bool finished = false;  ///< its stream is over; once its last step is agreed, no rank needs it
  };
  /// Whether a rank in this state has no part of a communicator left.
  [[nodiscard]] static bool is_clean(const communicator_state& c) noexcept {
    return c.at == communicator_state::how::none || c.at == communicator_state::how::aborted;
  }

  void begin(bool a_rank_holds_one) noexcept { at_ = a_rank_holds_one ? stage::aborting : stage::idle; }
  void break_off() noexcept {
    if (at_ != stage::idle) at_ = stage::aborting;
  }
  void drawn(std::string id) {
    if (at_ != stage::drawing) return;
    id_ = std::move(id);
    at_ = stage::making;
  }
  [[nodiscard]] bool ready() const noexcept { return at_ == stage::ready; }
  /// Returns whether to create the id of view.communicator. `process`: the coordinator's.
  [[nodiscard]] bool tend(group_view& view, const std::vector<rank>& ranks, std::uint64_t process);
  /// A step is agreed once all ranks hold its snapshot. Steps are agreed only while the ranks
  /// share a communicator: after a loss, all ranks go back to the agreed step, and a report in
  /// flight must not change it.
  void agree_on_snapshot(group_view& view, const std::vector<rank>& ranks) const;
  /// The order for every rank.
  [[nodiscard]] communicator_order order(std::uint64_t number) const;

 private:
  enum class stage : std::uint8_t { idle, drawing, making, ready, aborting };
  stage at_ = stage::idle;
  std::string id_;
};

}  // namespace penstock::group
