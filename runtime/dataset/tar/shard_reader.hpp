// Reads members of shards in a worker: descriptors stay open, and neighbouring members are read with one call.
#pragma once

#include "runtime/base/fd.hpp"
#include "runtime/base/result.hpp"
#include "runtime/dataset/recycled_buffer.hpp"
#include "runtime/dataset/tar/tar_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class shard_reader {
 public:
  /// `folder`: what the shards' names are relative to. The index must outlive the reader.
  shard_reader(const tar_index& index, std::string folder);

  /// The contents of these members of one shard, in the order given; valid until the next call. Refuses (errc::io,
  /// with errno where there is one) a shard that cannot be opened or read, and one whose size or time of modification
  /// is not that of the index: it changed.
  result<std::span<const std::span<const std::byte>>> read(std::uint64_t shard,
                                                           std::span<const indexed_member> members);

 private:
  struct open_shard {
    std::uint64_t shard = ~std::uint64_t{0};
    unique_fd fd;
  };
  result<int> open(std::uint64_t shard);
  result<void> read_range(std::uint64_t shard, int fd, std::uint64_t at, std::span<std::byte> to);

  const tar_index& index_;
  std::string folder_;
  std::vector<open_shard>
      open_;  // one place for several shards: a dataset may have more than a process may open
  recycled_buffer buffer_;
  std::vector<std::span<const std::byte>> contents_;
};

}  // namespace penstock
