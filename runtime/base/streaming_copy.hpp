// A memcpy that bypasses the caches, for large blocks that this core does not read again. Used by the threads that copy
// large arguments into slots, the host device and the synthetic dataset.
#pragma once

#include <cstddef>
#include <span>

namespace penstock {

/// Copies `from` into `to`, which is at least as large; they must not overlap. The stores bypass this core's
/// caches. A plain store first fetches each line from the core that last used the slot. The line then stays
/// in this core's cache, from which the reading core must fetch it. Between cores without a shared cache,
/// these fetches take four times as long as the copy itself. On return the bytes are visible to any process
/// that is then notified of them.
void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept;

}  // namespace penstock
