// Finds or builds the index of a tar dataset's shards. The index is next to the shards if they are files in
// a writable folder, else in a cache folder. Used by the session before any worker exists, and by the tools.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/tar/shard_list.hpp"
#include "runtime/dataset/tar/tar_index.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock {

struct index_progress {
  std::uint64_t bytes = 0;  ///< read so far, in bytes of the shards
  std::uint64_t all = 0;
  bool waiting = false;  ///< whether another process is building the same index
};

struct found_index {
  unique_fd file;  ///< read-only; for the workers
  tar_index index;
  std::string path;  ///< empty: no folder was writable, and the index exists only in memory
  bool built = false;
  std::vector<std::string> notices;
};

/// Uses an existing index if it was made of the same names in the same order, and each shard still has the same size
/// and time of modification (or ETag). Otherwise builds it again, and a notice says why. If several processes need it
/// at the same time, only one of them builds it, provided that the file system has locks. `cache`: a folder, created if
/// missing; "" for $XDG_CACHE_HOME/penstock. During a build, `told` is called a few times a second on this thread.
/// Refuses what read_shard refuses, for the first such shard.
result<found_index> find_index(const shard_list& shards, const std::string& cache,
                               const std::function<void(const index_progress&)>& told = {});

/// Adds a notice for shards that may have been cut short or that have a second archive appended.
void add_notices_about(const tar_index& index, std::vector<std::string>& notices);

}  // namespace penstock
