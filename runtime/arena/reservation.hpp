// The order in which memory is allocated to slots. A partition's first slots get memory at once, so that its worker can
// begin. The others follow in parts, because the allocation takes 0.3 s per GiB. Pure; used by the session actor.
#pragma once

#include "runtime/arena/geometry.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::arena {

/// Slots of one partition.
struct slot_range {
  std::uint32_t partition = 0;
  std::uint32_t first = 0;
  std::uint32_t end = 0;  ///< one past the last slot

  bool operator==(const slot_range&) const = default;
};

class reservation {
 public:
  static constexpr std::uint64_t part_bytes = 16 * MiB;  ///< takes about 5 ms to allocate
  /// A worker holds two leases, and the device may still read a third slot.
  static constexpr std::uint32_t first_slots = 3;

  explicit reservation(const geometry& shape) : shape_(shape) {}

  /// The slots that a partition gets at once.
  [[nodiscard]] slot_range begin(std::uint32_t partition) {
    const slot_range first{partition, 0, std::min(shape_.slots, std::max(first_slots, slots_a_part()))};
    if (!is_last(first)) rest_.push_back({partition, first.end, shape_.slots});
    return first;
  }

  /// The next part to allocate. Partitions are completed in the order of their begin() calls. Empty if all of
  /// them are complete.
  [[nodiscard]] std::optional<slot_range> next() {
    if (rest_.empty()) return std::nullopt;
    slot_range& rest = rest_.front();
    const slot_range part{rest.partition, rest.first, std::min(rest.end, rest.first + std::max(1U, slots_a_part()))};
    rest.first = part.end;
    if (is_last(part)) rest_.pop_front();
    return part;
  }

  /// Whether this is the last part of its partition.
  [[nodiscard]] bool is_last(const slot_range& part) const { return part.end == shape_.slots; }

 private:
  [[nodiscard]] std::uint32_t slots_a_part() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(part_bytes / shape_.slot_stride(), shape_.slots));
  }

  geometry shape_;
  std::deque<slot_range> rest_;  // at most one per partition
};

}  // namespace penstock::arena
