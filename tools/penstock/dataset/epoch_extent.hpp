// Which batches an epoch has. Used by planned_stream and journal_check.
#pragma once

#include <cstdint>

namespace penstock::cli {

/// The batches of an epoch: first .. end - 1. A group of a different size may have delivered those before `first`.
struct epoch_extent {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  bool entered = false;  ///< a group of another size began the epoch, so that its batches begin at another sample
};

}  // namespace penstock::cli
