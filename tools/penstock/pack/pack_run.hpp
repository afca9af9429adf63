// Writes the shards of `penstock pack`: threads read and encode pictures, one writes them in order. A shard gets its
// name when it is complete and on disk; then the state records it. Whatever kills the process, the next run continues
// after the last complete shard, and the shards are the same.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/listing/listing.hpp"
#include "tools/penstock/pack/pack_state.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace penstock::pack {

/// For the display; written by the run.
struct pack_progress {
  std::atomic<std::uint64_t> samples{0};  ///< samples taken from the folder, including failed ones
  std::atomic<std::uint64_t> bytes{0};    ///< written
};

/// Writes the shards that `state` lacks to the folder `out`, and updates the state with every shard. Pictures that cannot
/// be read are left out and listed. Fails (errc::io) with the system's error; the state then covers the complete shards.
result<void> write_shards(const listing& list, const std::string& out, unsigned threads, pack_state& state,
                          pack_progress& progress);

}  // namespace penstock::pack
