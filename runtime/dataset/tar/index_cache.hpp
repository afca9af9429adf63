// Finds the index of a tar dataset's shards, or builds it: next to the shards if they are files and that folder can be written
// to, else in a cache folder. Used by the session before any worker exists, and by the tools.
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
  std::uint64_t bytes = 0;  ///< of shards that were passed
  std::uint64_t all = 0;
  bool waiting = false;  ///< for another process that builds the same index
};

struct found_index {
  unique_fd file;  ///< read-only; for the workers
  tar_index index;
  std::string path;  ///< empty: no folder could be written to, and it exists in memory alone
  bool built = false;
  std::vector<std::string> notices;
};

/// An index is used if it was made of the same names in the same order and each shard has the size and time of
/// modification (or ETag) that it had then; otherwise it is built again, and a notice says why. Several processes that need
/// it at the same time build it once, where the file system has locks. `cache`: a folder, "" for
/// $XDG_CACHE_HOME/penstock; made if it is missing. `told` is called a few times a second while it is built, on this thread.
/// Refuses what read_shard refuses, for the first such shard.
result<found_index> find_index(const shard_list& shards, const std::string& cache,
                               const std::function<void(const index_progress&)>& told = {});

/// Adds a line for shards that may have been cut short or hold a second archive.
void add_notices_about(const tar_index& index, std::vector<std::string>& notices);

}  // namespace penstock
