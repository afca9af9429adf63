// How many slots a worker has. Used by whatever sizes the arena, the ledger and the owner's queue.
#pragma once

#include <penstock/config.hpp>

#include <algorithm>
#include <cstdint>

namespace penstock {

/// [loader] hedge needs one more slot, used only for second copies of late batches. A flight mark has room for 1024.
[[nodiscard]] inline std::uint32_t slots_of_a_worker(const loader_config& loader) noexcept {
  return std::min(loader.slots_per_worker + (loader.hedge ? 1U : 0U), 1024U);
}

}  // namespace penstock
