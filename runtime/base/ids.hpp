// The names of things that processes talk about. Plain facts: they can be copied, compared and sent.
#pragma once

#include <compare>
#include <cstdint>

namespace penstock {

/// Place of a batch in the whole stream: epoch * batches_per_epoch + sequence number within the epoch.
using stream_position = std::uint64_t;

/// A worker's place in the pool together with the number of the process that fills it (1, 2, ...). A message
/// from an earlier incarnation is recognised by it.
struct worker_ref {
  std::uint32_t worker = 0;
  std::uint32_t incarnation = 0;
  auto operator<=>(const worker_ref&) const = default;
};

/// Generations wrap at 28 bits, so that slot, generation, row and phase fit the flight recorder's one word. A
/// message would have to be 2^28 leases of one slot late to be mistaken.
inline constexpr std::uint32_t generation_mask = 0x0fff'ffff;

/// The right to fill one slot once. The slot's generation grows with each lease of it, so whatever arrives
/// late carries a generation that no longer matches.
struct lease_ref {
  worker_ref holder;
  std::uint32_t slot = 0;  ///< within the worker's partition
  std::uint32_t generation = 0;
  auto operator<=>(const lease_ref&) const = default;
};

}  // namespace penstock
