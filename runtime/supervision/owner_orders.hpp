// The uploads sent to the GPU owner's process and not acknowledged yet, and what happens to them when the
// process dies (rules O2-O10). Pure. Used by owner_supervision.
//
//   order          sent             copied             delivered
//   -----> unsent -----> outstanding -----> its slot is free -----> gone
//                            |  owner lost          |
//                            +----------+-----------+
//                                       v
//                      forgotten: the scheduler orders them again, under the next era
//
// Uploads are acknowledged in the order in which they were ordered; anything else violates the protocol. An
// order of an earlier era is dropped: the scheduler sent it before it learned of the death, and will send it
// again.
//
// A batch becomes a suspect when an owner crashes while its sink works on the batch. After the second such
// death, the batch is treated as the cause.
#pragma once

#include "runtime/base/upload_order.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock::supervision {

/// Which batch, if any, the owner's death is blamed on.
enum class suspicion_rule : std::uint8_t {
  none,              ///< killed from outside, or by the session for another reason
  in_hand,           ///< the owner crashed or hung: the batch that the sink was working on, if any
  /// The owner's CUDA context is lost: the batch that the sink was working on, or else the
  /// oldest unfinished batch.
  in_hand_or_oldest
};

class owner_orders {
 public:
  /// A batch that has killed this many owners is proven to be the cause (rule O5).
  static constexpr std::uint32_t deaths_that_prove = 2;

  /// Keeps the order until it is acknowledged. Ignores an order of an earlier era.
  void order(upload_order upload);
  /// Orders that no process has received yet, in order. From now on they count as sent.
  [[nodiscard]] std::vector<upload_order> take_unsent();
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

  // Messages from the process. Each function returns what is wrong with the message; empty if nothing is.
  [[nodiscard]] std::optional<std::string> copied(std::uint64_t upload);
  [[nodiscard]] std::optional<std::string> delivered(std::uint64_t upload);
  void keep_snapshot(std::string state) { snapshot_ = std::move(state); }

  struct loss {
    std::uint64_t era = 0;                ///< the era that begins
    /// The batch that the owner was working on, else its next or last one, whether it is blamed or not.
    std::optional<upload_order> had;
    std::optional<upload_order> suspect;  ///< the batch blamed for the death
    bool proven = false;                  ///< whether the suspect has killed deaths_that_prove owners
  };
  /// The process is gone. `in_hand`: the mark (generation_mask) of the upload that the sink was working on.
  loss lose_owner(suspicion_rule rule, std::optional<std::uint32_t> in_hand);

  /// The unacknowledged upload with this number, if there is one.
  [[nodiscard]] const upload_order* find(std::uint64_t upload) const;
  [[nodiscard]] const upload_order* find_by_mark(std::uint32_t mark) const;
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_.size(); }
  [[nodiscard]] std::uint64_t era() const noexcept { return era_; }
  /// The sink's latest snapshot: it covers every batch delivered so far.
  [[nodiscard]] const std::optional<std::string>& snapshot() const noexcept { return snapshot_; }

 private:
  std::uint64_t era_ = 0;
  std::map<std::uint64_t, upload_order> outstanding_;  // sent or not, by upload; bounded by slots and buffers
  std::vector<std::uint64_t> unsent_;                  // subset of outstanding_, in order
  std::set<std::uint64_t> copied_;                     // subset of outstanding_
  std::optional<upload_order> last_sent_;  // the last order sent to this process, without its samples
  std::map<stream_position, std::uint32_t> killings_;  // how many owners each batch has killed, until it is delivered
  std::optional<std::string> snapshot_;
};

/// "batch 17 of epoch 0 (samples 3, 1, 4 and 125 more)", "the result of job 17 (thumbnail)".
[[nodiscard]] std::string describe(const upload_order& batch);

}  // namespace penstock::supervision
