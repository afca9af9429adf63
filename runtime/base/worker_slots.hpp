// How many slots a worker has. Used where the arena, the ledger and the owner's queue get their sizes. Pure.
#pragma once

#include "runtime/base/units.hpp"

#include <penstock/config.hpp>

#include <algorithm>
#include <cstdint>

namespace penstock {

inline constexpr std::uint32_t slots_at_least = 3;
inline constexpr std::uint32_t slots_at_most = 8;
inline constexpr std::uint64_t automatic_slot_bytes = 8 * MiB;
inline constexpr std::uint32_t slots_max = 1024;  // the most that a word of the flight recorder can number

/// [loader] slots_per_worker = "auto": as many as fit in 8 MiB, 3 to 8 (rule M9). Small batches load faster than messages
/// arrive, so workers with few slots would wait. For large batches, more slots would only cost memory.
[[nodiscard]] constexpr std::uint32_t automatic_slots(std::uint64_t slot_bytes) noexcept {
  const std::uint64_t fit = automatic_slot_bytes / std::max<std::uint64_t>(slot_bytes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, slots_at_least, slots_at_most));
}

/// Batches that a worker of a session may hold.
[[nodiscard]] inline std::uint32_t slots_for_batches(const loader_config& loader, std::uint64_t slot_bytes) noexcept {
  return loader.slots_per_worker.value_or(automatic_slots(slot_bytes));
}

/// Slots of a worker of a session. [loader] hedge needs one more, used only for second copies of late batches.
[[nodiscard]] inline std::uint32_t slots_of_a_worker(const loader_config& loader, std::uint64_t slot_bytes) noexcept {
  return std::min(slots_for_batches(loader, slot_bytes) + (loader.hedge ? 1U : 0U), slots_max);
}

/// The most slots that a worker can have, for bounds that are needed before the size of a slot is known.
[[nodiscard]] inline std::uint32_t most_slots_of_a_worker(const loader_config& loader) noexcept {
  return slots_of_a_worker(loader, 0);
}

/// Slots of a worker of a pool, whose slots hold jobs.
[[nodiscard]] inline std::uint32_t slots_of_a_pool_worker(const loader_config& loader) noexcept {
  return loader.slots_per_worker.value_or(slots_at_least);
}

}  // namespace penstock
