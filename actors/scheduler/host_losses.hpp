// Counts the loader hosts that were lost while they loaded each batch. A lost host is blamed on a sample only if one
// batch keeps losing hosts (rule H4).
#pragma once

#include "actors/protocol/local/scheduler_messages.hpp"
#include "runtime/schedule/ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace penstock::scheduler {

class host_losses {
 public:
  static constexpr std::uint32_t charged_from = 3;

  /// The mark to blame for a worker's end. None if the worker's host was lost and its batch has lost fewer than
  /// `charged_from` hosts so far.
  [[nodiscard]] std::optional<schedule::flight_mark> charged(const schedule::ledger& ledger, const worker_ended& end) {
    if (!end.host_lost || !end.mark) return end.mark;
    const auto position = ledger.position_of({end.who, end.mark->slot, end.mark->generation});
    return position && ++losses_[*position] >= charged_from ? end.mark : std::nullopt;
  }

  /// Call when the batch is delivered: it can lose no other host.
  void delivered(stream_position batch) { losses_.erase(batch); }
  /// For a seek.
  void forget() { losses_.clear(); }
  [[nodiscard]] std::size_t size() const noexcept { return losses_.size(); }

 private:
  std::map<stream_position, std::uint32_t> losses_;
};

}  // namespace penstock::scheduler
