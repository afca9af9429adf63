// What the GPU owner's process owes: the uploads that were ordered and are not acknowledged, and what its death means
// for them (semantics 24, 25). Pure. Used by owner_supervision.
//
//   order          sent             copied             delivered
//   -----> unsent -----> outstanding -----> its slot is free -----> gone
//                            |  owner lost          |
//                            +----------+-----------+
//                                       v
//                      forgotten: the scheduler orders them again, under the next era
//
// Uploads are acknowledged in the order in which they were ordered; anything else is a lie. An order of an earlier era
// is dropped: the scheduler gave it before it heard of the death, and gives it again.
//
// A batch is suspected when an owner dies of its own doing with it in the sink's hands. The second death proves it.
#pragma once

#include "runtime/base/upload_order.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock::supervision {

/// Which batch a death of the owner says something about.
enum class suspicion_rule : std::uint8_t {
  none,              ///< it was killed from outside, or by us for something else
  in_hand,           ///< it crashed or never came back: the batch in the sink's hands, if there is one
  in_hand_or_oldest  ///< its context is lost: else the oldest that is not done
};

class owner_orders {
 public:
  /// So many owners that a batch has killed prove that it is the batch (semantics 24).
  static constexpr std::uint32_t deaths_that_prove = 2;

  /// Keeps the order until it is acknowledged. Nothing if it is of an earlier era.
  void order(upload_order upload);
  /// What no process has been told yet, in order. From now on it counts as told.
  [[nodiscard]] std::vector<upload_order> take_unsent();
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

  // What the process says. Each answers with what is wrong with it, or nothing.
  [[nodiscard]] std::optional<std::string> copied(std::uint64_t upload);
  [[nodiscard]] std::optional<std::string> delivered(std::uint64_t upload);
  void keep_snapshot(std::string state) { snapshot_ = std::move(state); }

  struct loss {
    std::uint64_t era = 0;                ///< from now on
    std::optional<upload_order> suspect;  ///< the batch that the death is blamed on
    bool proven = false;                  ///< it has killed deaths_that_prove owners
  };
  /// The process is gone. `in_hand` is the mark of the upload that its sink was working on (generation_mask).
  loss lose_owner(suspicion_rule rule, std::optional<std::uint32_t> in_hand);

  /// An upload that is not acknowledged; nothing if there is none of this number.
  [[nodiscard]] const upload_order* find(std::uint64_t upload) const;
  [[nodiscard]] const upload_order* find_by_mark(std::uint32_t mark) const;
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_.size(); }
  [[nodiscard]] std::uint64_t era() const noexcept { return era_; }
  /// The sink's last one: it holds every batch that was delivered so far.
  [[nodiscard]] const std::optional<std::string>& snapshot() const noexcept { return snapshot_; }

 private:
  std::uint64_t era_ = 0;
  std::map<std::uint64_t, upload_order> outstanding_;  // told or not, by upload: bounded by slots and buffers
  std::vector<std::uint64_t> unsent_;                  // of these, in order
  std::set<std::uint64_t> copied_;                     // of these
  std::map<stream_position, std::uint32_t> killings_;  // owners that a batch has killed, until it is delivered
  std::optional<std::string> snapshot_;
};

/// "batch 17 of epoch 0 (samples 3, 1, 4 and 125 more)".
[[nodiscard]] std::string describe(const upload_order& batch);

}  // namespace penstock::supervision
