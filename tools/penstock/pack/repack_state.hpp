// What shards were made from, if `penstock pack` made them from other shards: pack.json next to them. From it, a continued run knows
// which shards it may keep.
#pragma once

#include "runtime/base/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace penstock::pack {

struct shard_source {
  std::string name;  ///< printable, without folders
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool operator==(const shard_source&) const = default;
};

struct repack_state {
  std::uint64_t frame_size = 0;                 ///< 0: not compressed
  std::map<std::string, shard_source> sources;  ///< by the printable names of the shards that are made from them
  bool operator==(const repack_state&) const = default;
};

/// The state in this folder, if there is one. Refuses (errc::usage) a state of another kind.
result<std::optional<repack_state>> read_repack_state(const std::string& folder);

/// Replaces the state in this folder.
result<void> write_repack_state(const std::string& folder, const repack_state& state);

}  // namespace penstock::pack
