// Writes tar shards again, compressed or not, for `penstock pack`. The archives stay the same, byte for byte.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/tar/shard_list.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::pack {

/// Whether this path names shards, rather than an image folder: a file, or a folder of files that has no pictures and no
/// folder but `out`.
[[nodiscard]] bool names_shards(const std::string& path, const std::string& out);

struct repacked_shard {
  std::string name;
  bool was_there = false;  ///< kept from an earlier run
  std::uint64_t archive_bytes = 0;
  std::uint64_t bytes = 0;  ///< size of the file
};

/// Puts members of one sample that follow each other into one frame. Keeps an existing shard if it was made from the same file. Adds the
/// archives' bytes to `passed`. Refuses (errc::usage) two shards of the same name, and an `out` that contains the source shards or shards
/// made in another way. Other errors name the shard that cannot be read, written or parsed as tar.
result<std::vector<repacked_shard>> repack(const shard_list& shards, const std::string& out, std::uint64_t frame_size, unsigned threads,
                                           std::atomic<std::uint64_t>& passed);

}  // namespace penstock::pack
