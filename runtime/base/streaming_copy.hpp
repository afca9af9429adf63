// memcpy past the caches, for large blocks that this core does not read again. Used by the threads that copy large
// arguments into slots, and by the synthetic dataset.
#pragma once

#include <cstddef>
#include <span>

namespace penstock {

/// Copies `from` into `to`, which is at least as large; they must not overlap. The stores go past this core's caches to
/// memory: a plain store first fetches each line from the core that used the slot last, and leaves it where the reading
/// core has to fetch it again. Between cores that share no cache this takes four times as long as the copy itself. On
/// return the bytes are visible to whoever is told of them.
void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept;

}  // namespace penstock
