// Identifiers used in messages between processes. Plain values: copyable, comparable, serialisable.
#pragma once

#include <compare>
#include <cstdint>

namespace penstock {

/// Place of a batch in the whole stream: epoch * batches_per_epoch + sequence number within the epoch.
using stream_position = std::uint64_t;

/// A worker's place in the pool and the incarnation of the process there (1, 2, ...). The incarnation
/// identifies messages from an earlier process.
struct worker_ref {
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  auto operator<=>(const worker_ref&) const = default;
};

/// Generations wrap at 28 bits, so that slot, generation, row and phase fit one word of the flight recorder.
/// A stale message could be taken for a current one only after 2^28 leases of the same slot.
inline constexpr std::uint32_t generation_mask = 0x0fff'ffff;

/// The right to fill one slot once. The slot's generation increases with each lease, so a late message has a
/// generation that no longer matches.
struct lease_ref {
  worker_ref holder;
  std::uint32_t slot = 0;  ///< within the worker's partition
  std::uint32_t generation = 0;
  auto operator<=>(const lease_ref&) const = default;
};

}  // namespace penstock
