// Where each slot is in the arena. Pure: session, workers and GPU owner compute the same offsets.
//
//   partition 0                                  partition 1
//   | slot 0 ..... |guard| slot 1 ..... |guard|  | slot 0 ..... |guard| ...
//
// The guard page after each slot is part of the file. The owner maps it, because it registers a partition as one range.
// Workers do not: writing past a slot raises SIGSEGV while the offending sample is in progress.
#pragma once

#include "runtime/base/units.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock::arena {

inline constexpr std::uint64_t page_bytes = 4096;  // page size of x86-64; checked before memory is mapped

struct geometry {
  std::uint64_t slot_bytes = 0;  ///< bytes that a batch may use
  std::uint32_t slots = 0;       ///< per partition
  std::uint32_t partitions = 0;  ///< one per worker place, including the sacrificial worker's

  [[nodiscard]] constexpr std::uint64_t slot_mapped_bytes() const { return round_up(slot_bytes, page_bytes); }
  [[nodiscard]] constexpr std::uint64_t slot_stride() const { return slot_mapped_bytes() + page_bytes; }
  [[nodiscard]] constexpr std::uint64_t slot_offset(std::uint32_t slot) const { return slot * slot_stride(); }
  [[nodiscard]] constexpr std::uint64_t partition_bytes() const { return slots * slot_stride(); }
  [[nodiscard]] constexpr std::uint64_t partition_offset(std::uint32_t p) const {
    return p * partition_bytes();
  }
  [[nodiscard]] constexpr std::uint64_t bytes() const { return partitions * partition_bytes(); }

  bool operator==(const geometry&) const = default;
};

}  // namespace penstock::arena
