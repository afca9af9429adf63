// Which objects of the cache are emptied when it has no room, and whether it takes more. Pure. Used by the block cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct kept_object {
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  ///< when it was used last: a time of the file system
};

struct cache_room {
  std::vector<std::size_t> emptied;  ///< the objects to empty, in this order
  std::uint64_t left = 0;            ///< bytes that are left
  bool full = false;                 ///< nothing new is kept
};

/// Empties objects that were last used before the latest session began, the oldest first, from 15/16 of `bytes_max` down to 9/10.
/// What that session uses stays: in an epoch each block is needed once, so no other choice gives more hits
/// (docs/decisions/0038), and the cache takes nothing more once it is full of that.
cache_room make_room(std::span<const kept_object> objects, std::int64_t session_began, std::uint64_t bytes_max);

}  // namespace penstock
