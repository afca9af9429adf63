// Decides which objects are emptied when the cache has no room, and whether the cache accepts more. Pure. Used by the block cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

struct kept_object {
  std::uint64_t bytes = 0;
  std::int64_t used = 0;  ///< when the object was last used, by the file system's clock
};

struct cache_room {
  std::vector<std::size_t> emptied;  ///< the objects to empty, in this order
  std::uint64_t left = 0;            ///< bytes in use afterwards
  bool full = false;                 ///< whether to store nothing new
};

/// If more than 15/16 of `bytes_max` are in use, empties objects, the longest unused first, until 9/10 are in
/// use. Only objects that were last used before the latest session began are emptied. An epoch needs each
/// block once, so no other choice gives more hits (docs/decisions/0038). If objects of the latest session
/// fill the cache, it accepts nothing more.
cache_room make_room(std::span<const kept_object> objects, std::int64_t session_began, std::uint64_t bytes_max);

}  // namespace penstock
