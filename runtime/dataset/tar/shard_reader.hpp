// Reads members of shards in a worker. Shards stay open, and adjacent members are read with one call. In compressed
// shards it reads only the frames that hold the members.
#pragma once

#include "runtime/base/result.hpp"
#include "runtime/dataset/file_pool.hpp"
#include "runtime/dataset/recycled_buffer.hpp"
#include "runtime/dataset/tar/frame_reader.hpp"
#include "runtime/dataset/tar/tar_index.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class shard_reader {
 public:
  /// `folder`: what the shards' names are relative to; `store`: for a URL, otherwise null. The index must outlive the reader.
  shard_reader(const tar_index& index, std::string folder, std::shared_ptr<object_store> store);

  /// The contents of these members of one shard, in the given order; valid until the next call. Refuses (errc::io, with
  /// errno if there is one) a shard that cannot be opened or read, and a shard whose size, time of modification or ETag
  /// differs from the index.
  result<std::span<const std::span<const std::byte>>> read(std::uint64_t shard,
                                                           std::span<const indexed_member> members);

  /// Loads libzstd if a shard is compressed. Refuses (errc::config) if libzstd is missing. Without this call,
  /// read() refuses compressed shards.
  result<void> prepare();
  [[nodiscard]] bool is_remote() const noexcept { return files_.is_remote(); }
  /// Starts to fetch ranges of a remote shard that read() will need. Can be called from any thread.
  void expect(std::uint64_t shard, std::vector<byte_range> ranges);

 private:
  std::shared_ptr<readable> file_of(std::uint64_t shard);
  result<void> read_range(std::uint64_t shard, byte_range range, std::span<std::byte> to);

  const tar_index& index_;
  std::string folder_;
  file_pool files_;
  frame_reader frames_;
  recycled_buffer buffer_;
  std::vector<std::span<const std::byte>> contents_;
};

/// The ranges to read for a sample's members: one range if they are close together, else one for each.
std::vector<byte_range> ranges_of(std::span<const indexed_member> members);

}  // namespace penstock
